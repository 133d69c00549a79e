"""What `larvatus.load` returns: one object with the verbs.

import larvatus as lv

model = lv.load("runs/law")
model.fill("The appeal was [MASK].")[0].token
model.embed(["The appeal was dismissed."], unit="word", layers="last4")[0].shape
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch

from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.cloze.fill import fill_blanks
from larvatus.cloze.results import Fills
from larvatus.embed.bulk import model_fingerprint
from larvatus.embed.encoded import Spans, Text
from larvatus.embed.layers import Layers
from larvatus.embed.options import EmbedOptions, Pool, Precision, Unit
from larvatus.embed.results import Floats, Vectors
from larvatus.embed.standardise import Standardiser, find_standardiser
from larvatus.embed.vectors import embed_texts
from larvatus.errors import ArtefactError, UsageError
from larvatus.nn.transformer import Transformer
from larvatus.probe.attention import TextAttention, attend
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

    @cached_property
    def fingerprint(self) -> str:
        """Which weights, settings and vocabulary these are."""
        return model_fingerprint(self.bundle.path, self.tokenizer)

    def standardiser(self, given: str | Standardiser | None) -> Standardiser | None:
        """By its name in the model's directory (or a file, or one that is loaded); it must be fitted for this model."""
        found = find_standardiser(self.bundle.path, given) if isinstance(given, str) else given
        if found is not None:
            found.check_model(self.fingerprint, self.bundle.path)
        return found

    def fill(self, text: str, *, top: int = 5, beam: int = 10, joint: bool = True, words_only: bool = False) -> Fills:
        """The best words for the blanks of a text, each marked with the mask token; several are filled jointly.

        `joint=False` asks only for each blank's own candidates (`.marginals`), `words_only` leaves out pieces such as
        `##ing`, and `beam` says how many fillings of several blanks are kept on the way.
        """
        if "masked-lm" not in self.pretraining.objectives:
            raise ArtefactError(
                f"{self.bundle.path} has no masked-lm head to fill blanks with; use a model pretrained with masked-lm"
            )
        return fill_blanks(
            self.pretraining, self.tokenizer, text, top=top, beam=beam, joint=joint, words_only=words_only
        )

    def embed(
        self,
        texts: Sequence[Text],
        *,
        unit: Unit = "sentence",
        layers: Layers = "last",
        pool: Pool = "mean",
        spans: Sequence[Spans] | None = None,
        normalise: bool = False,
        precision: Precision = "fp32",
        standardise: str | Standardiser | None = None,
    ) -> list[Floats]:
        """One array for each text: [units, D] of its tokens, words or spans, [D] of a sentence or document.

        `layers` is `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all` ([layers + 1, …]).
        Words and spans are pooled from their subwords by mean, sum, max, first or last; sentences by mean, max or cls.
        Spans are (start, end) in characters, or words marked with stars: `"the *bank* of the river"`. A text may also
        be a list of words. Long texts are read in overlapping windows, to their end. `standardise` names a standardiser
        that `larvatus isotropy fit` saved with the model (eq. 11.10 to 11.12).
        """
        options = EmbedOptions(
            unit=unit,
            layers=layers,
            pool=pool,
            normalise=normalise,
            precision=precision,
            standardise=self.standardiser(standardise),
        )
        return [found.array for found in embed_texts(self.encoder, self.tokenizer, texts, options, spans=spans)]

    def vectors(
        self,
        texts: Sequence[Text],
        *,
        unit: Unit = "word",
        layers: Layers = "last",
        pool: Pool = "mean",
        spans: Sequence[Spans] | None = None,
        normalise: bool = False,
        precision: Precision = "fp32",
        standardise: str | Standardiser | None = None,
    ) -> list[Vectors]:
        """As `embed`, with what each unit says, its characters, and how much was read."""
        options = EmbedOptions(
            unit=unit,
            layers=layers,
            pool=pool,
            normalise=normalise,
            precision=precision,
            standardise=self.standardiser(standardise),
        )
        return list(embed_texts(self.encoder, self.tokenizer, texts, options, spans=spans))

    def attention(self, text: str) -> TextAttention:
        """What every head looks at in a text: `.tokens`, and `.weights` [layers, heads, T, T], a row for each token."""
        return attend(self.encoder, self.tokenizer, text)

    def __repr__(self) -> str:
        model = self.bundle.model
        parameters = sum(p.numel() for p in self.pretraining.parameters())
        heads = ", ".join(self.pretraining.objectives) or "no heads"
        return (
            f"<Model {self.bundle.path}: {model.layers} layers, {model.hidden} hidden, {model.heads} heads, "
            f"{parameters / 1e6:.1f}M parameters, {self.tokenizer.size:,} tokens, {heads}, on {self.device}>"
        )


def load(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    allow_nan: bool = False,
    revision: str | None = None,
    online: bool = False,
) -> Model:
    """Load a model directory, ours or one that `transformers` saved, or a model of the Hugging Face hub by its name.

    A hub model (`org/name`, `org/name@COMMIT`) is looked up in the local cache; nothing is downloaded unless
    `online=True`, which needs `revision` to be a commit of 40 digits.
    """
    return Model(load_bundle(path, allow_nan=allow_nan, revision=revision, online=online), choose_device(device))


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
