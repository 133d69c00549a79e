"""Distil a sentence encoder into a static model: one vector for each token.

small = lv.distil_static("all-MiniLM-L6-v2", out="runs/static", corpus="texts/")
small.embed(["the river", "the town"]).shape                          # [2, 256], many thousand texts a second
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec
import numpy as np
import torch

from larvatus.core.arrays import Ints
from larvatus.core.run_identity import VERSION
from larvatus.data.text.readers import Skipped
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.model import Model, load
from larvatus.inference.vectors.distil import DistilOptions, StaticRows, distil
from larvatus.inference.vectors.passages import blocks, passages
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.bundle.directory import check_model_directory, save_bundle
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.models.network import Network
from larvatus.models.nn.static import StaticConfig

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import DistilStaticKeywords


CHARACTERS = 1 << 20
"""Characters of text that are counted at once."""


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
        corpus: Files, directories or globs of text, by whose frequencies tokens are weighted.
        device: Where a teacher is loaded: `auto`, `cpu` or `cuda`.
        overwrite: Replace a model that is there.
        progress: Called with how many tokens the teacher has embedded.
        skipped: Counts what could not be read of the text.
        **settings: `size` (dimensions) and `sif` (constant of the weights); how text is read: `language`, `sentences`,
            `split`, `on_bad`, `encoding`, `text` (column of tables).

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
    counts = None if paths is None else _counts(teacher.tokenizer, paths, text, skipped)
    made = distil(teacher, chosen, counts, progress=progress)
    _save(Path(out), teacher, made, chosen)
    return made


def _counts(tokenizer: Tokenizer, paths: list[str], text: TextSettings, skipped: Skipped | None) -> Ints:
    """[V] how often each token occurs in a text, which is read a block at a time."""
    counts_V = np.zeros(tokenizer.size, np.int64)
    pieces = passages(paths, text.passages, skipped if skipped is not None else Skipped())
    for block in blocks(pieces, CHARACTERS):
        ids, _ = tokenizer.encode_lengths([piece.text for piece in block])
        counts_V += np.bincount(ids, minlength=tokenizer.size)
    return counts_V


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
            "parent_fingerprint": teacher.vector_fingerprint,
            "distilled": {**msgspec.to_builtins(chosen), "counted": made.counted},
        },
        card=_card(out.name, parent, made),
    )


def _card(name: str, parent: str, made: StaticRows) -> str:
    tokens, size = made.rows_VD.shape
    text = f" The weights follow {made.counted:,} tokens of text." if made.counted else ""
    return (
        f"---\nlibrary_name: sentence-transformers\ntags:\n- larvatus\n- static\n---\n\n# {name}\n\n"
        f"A static model: one vector of {size} dimensions for each of {tokens:,} tokens. Larvatus {VERSION} made the "
        f"vectors from the outputs of `{parent}`, with PCA and SIF weights.{text} The vector of a text is the mean of "
        "its tokens', scaled to length 1; the order of words makes no difference.\n\n```python\nimport larvatus as lv\n"
        f'\nlv.load("{name}").embed(["a text", "another"])\n```\n\n`SentenceTransformer("{name}")` and '
        f'`StaticModel.from_pretrained("{name}")` of `model2vec` load the directory too.\n'
    )
