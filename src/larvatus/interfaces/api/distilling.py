"""Distil a sentence encoder into a static model: one vector for each token.

small = lv.distil_static("all-MiniLM-L6-v2", out="runs/static", corpus="texts/")
small.embed(["the river", "the town"]).shape                          # [2, 256], many thousand texts a second
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec
import torch

from larvatus.core.rng import stream
from larvatus.core.version import VERSION
from larvatus.data.text.readers import Skipped
from larvatus.inference.model import Model, load
from larvatus.inference.static.distil import DistilOptions, StaticRows, distil
from larvatus.inference.vectors.passages import passages
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.bundle.directory import check_model_directory, save_bundle
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.models.network import Network
from larvatus.models.nn.static import StaticConfig

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import DistilStaticKeywords


def distil_static(
    model: str | Path | Model | None = None,
    *,
    out: str | Path,
    corpus: Texts | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[DistilStaticKeywords],
) -> Model:
    """Make a static model: one vector for each token, from the outputs of a sentence encoder.

    Args:
        model: The teacher: a model directory, a hub name, or a loaded model; the packaged English model by default.
        out: A new model directory, which `sentence-transformers` (StaticEmbedding) and `model2vec` also load.
        corpus: Files, directories or globs of text, if rows shall also be fitted to the teacher's vectors of sentences.
        device: Where a teacher is loaded: `auto`, `cpu` or `cuda`.
        overwrite: Replace a model that is there.
        progress: Called with how many tokens and sentences the teacher has embedded.
        skipped: Counts what could not be read of the text.
        **settings: `size` (dimensions), `sif` (constant of the weights), `ridge`, `fitted` (sentences of the text) and
            `seed` (of their sample); how text is read: `language`, `sentences`, `split`, `on_bad`, `encoding`, `text`.

    Returns:
        The static model, with `embed` of sentences and documents.

    Example:
        >>> small = lv.distil_static(model, out=folder / "static", size=8, device="cpu")
        >>> small.embed(["the river ran", "the town"]).shape
        (2, 8)
    """
    chosen, text = read_settings(settings, DistilOptions, TextSettings, function="distil_static")
    loaded = loaded_model(model, device)
    run_static_distillation(
        loaded, chosen, text, out=out, corpus=corpus, overwrite=overwrite, progress=progress, skipped=skipped
    )
    return load(out, device=device)


def run_static_distillation(
    teacher: Model,
    chosen: DistilOptions,
    text: TextSettings,
    *,
    out: str | Path,
    corpus: Texts | None,
    overwrite: bool,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> StaticRows:
    """Run `distil_static` from structs, and save the model."""
    paths = None if corpus is None else path_names(corpus)
    check_model_directory(Path(out), overwrite=overwrite, inputs=[teacher.bundle.path, *(paths or [])])
    sentences = None if paths is None else _sentences(paths, text, chosen, skipped)
    made = distil(teacher, chosen, sentences, progress=progress)
    _save(Path(out), teacher, made, chosen)
    return made


def _sentences(paths: list[str], text: TextSettings, chosen: DistilOptions, skipped: Skipped | None) -> list[str]:
    """A random sample of the different sentences of a text, in its order; only the sample is held in memory."""
    options = msgspec.structs.replace(text.passages, characters=0)
    kept: list[tuple[float, int, str]] = []  # the largest random number first
    for number, piece in enumerate(passages(paths, options, skipped if skipped is not None else Skipped())):
        entry = (-float(stream(chosen.seed, "distilled sentences", item=number).random()), number, piece.text)
        if len(kept) < chosen.fitted:
            heapq.heappush(kept, entry)
        elif entry > kept[0]:
            heapq.heapreplace(kept, entry)
    return list(dict.fromkeys(sentence for _, _, sentence in sorted(kept, key=lambda entry: entry[1])))


def _save(out: Path, teacher: Model, made: StaticRows, chosen: DistilOptions) -> None:
    head = EmbeddingConfig(normalise=True)
    network = Network(StaticConfig(hidden=made.rows_VD.shape[1]), (head,), len(made.rows_VD))
    network.load_state_dict({"encoder.table.weight": torch.from_numpy(made.rows_VD)}, assign=True)
    parent = str(teacher.bundle.path)
    save_bundle(
        out,
        network=network,
        objective_configs=(head,),
        tokenizer=teacher.tokenizer,
        recipe=None,
        lineage={
            "parent": parent,
            "parent_fingerprint": teacher.fingerprint,
            "distilled": {**msgspec.to_builtins(chosen), "sentences_read": made.sentences},
        },
        card=_card(out.name, parent, made),
    )


def _card(name: str, parent: str, made: StaticRows) -> str:
    tokens, size = made.rows_VD.shape
    text = f" They were then fitted to its vectors of {made.sentences:,} sentences." if made.sentences else ""
    return (
        f"---\nlibrary_name: sentence-transformers\ntags:\n- larvatus\n- static\n---\n\n# {name}\n\n"
        f"A static model: one vector of {size} dimensions for each of {tokens:,} tokens. Larvatus {VERSION} made the "
        f"vectors from the outputs of `{parent}`, with PCA and SIF weights.{text} The vector of a text is the mean of "
        "its tokens', scaled to length 1; the order of words makes no difference.\n\n```python\nimport larvatus as lv\n"
        f'\nlv.load("{name}").embed(["a text", "another"])\n```\n\n`SentenceTransformer("{name}")` and '
        f'`StaticModel.from_pretrained("{name}")` of `model2vec` load the directory too.\n'
    )
