"""What `larvatus.load` returns: one object with the verbs.

import larvatus as lv

model = lv.load("runs/law")
model.fill("The appeal was [MASK].")[0].token
"""

from __future__ import annotations

from pathlib import Path

import torch

from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.cloze.fill import fill_blanks
from larvatus.cloze.results import Fills
from larvatus.errors import ArtefactError, UsageError
from larvatus.nn.transformer import Transformer
from larvatus.text.tokenizer import Tokenizer


class Model:
    """A loaded model in evaluation mode. It holds no state that a call could change."""

    def __init__(self, bundle: Bundle, device: torch.device) -> None:
        self.bundle = bundle
        self.device = device
        self.pretraining = bundle.pretraining.to(device).eval()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.bundle.tokenizer

    @property
    def encoder(self) -> Transformer:
        return self.pretraining.encoder

    def fill(self, text: str, *, top: int = 5, beam: int = 10, joint: bool = True, words_only: bool = False) -> Fills:
        """The best words for the blanks of a text, each marked with the mask token; several are filled jointly.

        A model that was trained with a generator fills them through that.
        `joint=False` asks only for each blank's own candidates (`.marginals`), `words_only` leaves out pieces such as
        `##ing`, and `beam` says how many fillings of several blanks are kept on the way.
        """
        if self.pretraining.filler is None:
            raise ArtefactError(
                f"{self.bundle.path} has no masked-lm head to fill blanks with; use a model pretrained with masked-lm"
            )
        return fill_blanks(
            self.pretraining, self.tokenizer, text, top=top, beam=beam, joint=joint, words_only=words_only
        )

    def __repr__(self) -> str:
        model = self.bundle.model
        parameters = sum(p.numel() for p in self.pretraining.parameters())
        heads = ", ".join(self.pretraining.heads) or "no heads"
        return (
            f"<Model {self.bundle.path}: {model.layers} layers, {model.hidden} hidden, {model.heads} heads, "
            f"{parameters / 1e6:.1f}M parameters, {self.tokenizer.size:,} tokens, {heads}, on {self.device}>"
        )


def load(path: str | Path, *, device: str | torch.device = "auto", allow_nan: bool = False) -> Model:
    """Load a model directory, ours or one that `transformers` saved. Nothing is downloaded."""
    return Model(load_bundle(Path(path), allow_nan=allow_nan), choose_device(device))


def choose_device(device: str | torch.device) -> torch.device:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as fault:
        raise UsageError(f"{device!r} is not a device; say cpu, cuda or cuda:1") from fault
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here; use --device cpu")
    return chosen
