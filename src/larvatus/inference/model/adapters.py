"""Sentence adapters: add one to a model directory, extract one from a fine-tuned encoder, or merge it into the weights.

    larvatus finetune embed --train pairs.tsv --trained lora32-all --out runs/faq
    larvatus adapter extract runs/faq --base english --out faq-adapter
    larvatus adapter add faq-adapter --model runs/mine            # runs/mine/sentence; its own weights stay as they are
    larvatus adapter merge runs/mine --out runs/mine-sentences    # for `sentence-transformers`

    add_adapter(Path("faq-adapter"), Path("runs/mine")).moved     # how far rounding moves vectors: 1 - cosine
    extract_adapter("runs/faq", "english", Path("faq-adapter")).missed

Adding rounds to int8, unless that moves a vector by more than 0.001 in cosine; then to float16. What an adapter is:
`models/bundle/sentence_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch

from larvatus.core import files
from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.rng import stream
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.bundle.card import without_marks
from larvatus.models.bundle.directory import Bundle, check_model_directory, load_bundle, save_changed
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.models.bundle.partial_updates import card_state, read_card, store_adapter
from larvatus.models.bundle.sentence_adapter import (
    WEIGHTS,
    AdapterConfig,
    AdapterPrecision,
    SentenceAdapter,
    check_adapter,
    read_adapter,
    rounded_adapter,
    trained_adapter,
    write_adapter,
)
from larvatus.models.bundle.sentence_modules import sentence_head
from larvatus.models.bundle.weights import read_tensors
from larvatus.models.heads.embedding import Embedding
from larvatus.models.heads.head import HeadConfig
from larvatus.models.nn.lora import TARGETS, LoRAConfig, extract_lora

MOST_MOVED = 1e-3
"""Largest 1 - cosine between vectors before and after rounding to int8."""
SAMPLE = 64
"""Texts that rounding is measured on."""


@dataclass(frozen=True, kw_only=True)
class WrittenAdapter:
    """An adapter in its directory."""

    path: Path
    rank: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True, kw_only=True)
class AddedAdapter(WrittenAdapter):
    """An adapter that was added to a directory."""

    dtype: AdapterPrecision
    bytes: int
    moved: float
    """Largest 1 - cosine between vectors before and after rounding, over some texts."""


@dataclass(frozen=True, kw_only=True)
class ExtractedAdapter(WrittenAdapter):
    """An adapter that was made from a fine-tuned encoder."""

    missed: float
    """Share of what fine-tuning changed that this rank does not express."""


def add_adapter(
    source: Path, model: Path, *, alpha: float | None = None, dtype: AdapterPrecision | None = None
) -> AddedAdapter:
    """Put an adapter into a model directory as its folder `sentence`, in place of one that is there.

    Args:
        source: A folder of `extract_adapter`; or a safetensors file of a training script, with the LoRA tensors of
            `encoder.state_dict()` and maybe `dense.weight`.
        model: The directory of the model that it was trained with, which Larvatus wrote.
        alpha: α of LoRA, which a file does not state.
        dtype: Precision of the stored numbers; None for int8, or float16 where int8 moves vectors by more than 0.001.
    """
    bundle = load_bundle(model)
    card_state(bundle.path)  # refuses a directory that Larvatus did not write
    _refuse_heads(bundle)
    adapter = _read(source, bundle, alpha)
    chosen, moved = _rounding(adapter, bundle, dtype)
    path = store_adapter(bundle.path, adapter, dtype=chosen)
    stored = (path / WEIGHTS).stat().st_size
    return AddedAdapter(path=path, rank=adapter.config.rank, dtype=chosen, bytes=stored, moved=moved)


def _refuse_heads(bundle: Bundle) -> None:
    tuned = [config for config in bundle.objectives if isinstance(config, HeadConfig)]
    if tuned or bundle.pooling:
        what = "a sentence encoder" if bundle.pooling else f"a fine-tuned model ({tuned[0].describe()})"
        raise UsageError(f"{bundle.path} is {what}; an adapter is for the pretrained encoder that it was trained with")


def _read(source: Path, bundle: Bundle, alpha: float | None) -> SentenceAdapter:
    if source.is_dir():
        if alpha is not None:
            raise UsageError(f"{source} states its alpha; leave --alpha out")
        return read_adapter(source, bundle.network.encoder)
    adapter = trained_adapter(read_tensors(source), alpha, source=source)
    check_adapter(adapter, bundle.network.encoder, source)
    return adapter


def _rounding(
    adapter: SentenceAdapter, bundle: Bundle, dtype: AdapterPrecision | None
) -> tuple[AdapterPrecision, float]:
    """The precision to store an adapter in, and how far it moves vectors."""
    texts = _sample(bundle.tokenizer)
    exact = _vectors(adapter, bundle, texts)
    candidates: Sequence[AdapterPrecision] = ("int8", "float16") if dtype is None else (dtype,)
    for kind in candidates:
        rounded = _vectors(rounded_adapter(adapter, kind), bundle, texts)
        lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
        moved = float(np.max(1 - (exact * rounded).sum(1)[lengths > 0] / lengths[lengths > 0], initial=0.0))
        if moved <= MOST_MOVED:
            break
    return kind, moved


def _sample(tokenizer: Tokenizer) -> list[str]:
    """Random words of the vocabulary, in any language."""
    generator = stream(0, "adapter sample")
    lengths = generator.integers(4, 40, size=SAMPLE).tolist()
    texts = (generator.integers(tokenizer.size, size=length).tolist() for length in lengths)
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in texts]


def _vectors(adapter: SentenceAdapter, bundle: Bundle, texts: Sequence[str]) -> Floats:
    network, config = adapter.network(bundle.network), adapter.config
    head = cast(Embedding, network.heads["embedding"])
    options = EmbedOptions(pool=config.pool, normalise=config.normalise, projected=True)
    embedded = embed_texts(network.encoder, bundle.tokenizer, texts, options, head=head)
    return np.nan_to_num(np.stack([vectors.array for vectors in embedded])).astype(np.float64)


def extract_adapter(tuned: str | Path, base: str | Path, out: Path, *, rank: int | None = None) -> ExtractedAdapter:
    """Write the difference between a sentence encoder and the model that it was fine-tuned from as an adapter.

    Args:
        tuned: Output of `larvatus finetune embed` with LoRA, which left embeddings and norms as they were.
        base: The model that it was fine-tuned from.
        out: A new folder.
        rank: Rank of the adapter; None for that of the fine-tuning.
    """
    check_outputs(out, overwrite=False)
    after, before = load_bundle(tuned), load_bundle(base)
    head = sentence_head(after.objectives)
    if head is None:
        raise UsageError(f"{tuned} gives no vectors of texts; fine-tune one with larvatus finetune embed")
    config = _trained_config(after, before, rank)
    if msgspec.structs.asdict(after.model) != msgspec.structs.asdict(before.model):
        raise UsageError(f"{tuned} is another encoder than {base}; name the model that it was fine-tuned from")
    pairs, missed = extract_lora(before.network.encoder, after.network.encoder, config)
    _refuse_others(before, after, {name.partition(".lora.")[0] + ".weight" for name in pairs}, str(tuned), str(base))
    modules = after.network.objectives["embedding"].state_dict()
    adapter = SentenceAdapter(
        AdapterConfig(
            rank=config.rank,
            alpha=config.alpha,
            targets=config.targets,
            pool=head.pool,
            projections=head.projections,
            normalise=head.normalise,
        ),
        {**pairs, **modules},
    )
    with files.new_directory(out) as aside:
        write_adapter(aside, adapter, dtype="float32")
    return ExtractedAdapter(path=out, rank=config.rank, missed=missed)


def _trained_config(tuned: Bundle, base: Bundle, rank: int | None) -> LoRAConfig:
    """LoRA as the lineage states it, or of all targets with the rank that is given.

    Training began with the adapter of the base, if it has one: the difference to its weights then has both ranks.
    """
    trained = dict(tuned.lineage.get("settings") or {}).get("trained") or {}
    if trained.get("what") == "lora":
        stated = msgspec.convert(trained["lora"], LoRAConfig)
        first = None if base.adapter is None else base.adapter.config
        size = stated.rank + (0 if first is None else first.rank) if rank is None else rank
        targets = {*stated.targets, *(() if first is None else first.targets)}
        return LoRAConfig(rank=size, alpha=float(size), targets=tuple(name for name in TARGETS if name in targets))
    if rank is None:
        raise UsageError(f"{tuned.path} was not fine-tuned with LoRA; give --rank, or train with --trained lora32")
    return LoRAConfig(rank=rank, alpha=float(rank), targets=TARGETS)


def _refuse_others(before: Bundle, after: Bundle, adapted: set[str], tuned: str, base: str) -> None:
    first, second = before.network.encoder.state_dict(), after.network.encoder.state_dict()
    changed = [name for name, tensor in first.items() if name not in adapted and not torch.equal(tensor, second[name])]
    if changed:
        raise ArtefactError(
            f"{tuned} differs from {base} in {changed[0]} ({len(changed)} such), which no adapter changes; name "
            "the model that it was fine-tuned from, or fine-tune with LoRA"
        )


def merge_adapter(model: str | Path, out: Path, *, overwrite: bool = False) -> Path:
    """Write the sentence encoder that a model and its adapter are: a directory that `sentence-transformers` reads."""
    bundle = load_bundle(model)
    check_model_directory(out, overwrite=overwrite, inputs=[bundle.path])
    if bundle.adapter is None:
        raise UsageError(f"{bundle.path} has no sentence adapter to merge; larvatus adapter add gives it one")
    merged = sentence_bundle(bundle)
    note = {"from": str(model), "rank": bundle.adapter.config.rank, "sha256": bundle.adapter.checksum}
    front = "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n---\n\n"
    card = f"{front}# {out.name}\n\nThe sentence encoder of `{model}`: its weights with its sentence adapter merged.\n"
    if before := read_card(bundle):
        card += f"\n## The card of `{model}`\n\n{without_marks(before)}"
    save_changed(merged, out, lineage={"parent_lineage": bundle.lineage, "merged": note}, card=card)
    return out
