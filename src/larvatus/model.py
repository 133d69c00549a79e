"""What `larvatus.load` returns: one object with the verbs.

import larvatus as lv

model = lv.load("runs/law")
model.fill("The appeal was [MASK].")[0].token
model.embed(["The appeal was dismissed."], unit="word", layers="last4")[0].shape
"""

from __future__ import annotations

from collections.abc import Sequence
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
from larvatus.embed.senses.inventory import SenseInventory
from larvatus.embed.senses.tagger import SenseTagger, TagOptions
from larvatus.embed.senses.wordnet import WordNet
from larvatus.embed.vectors import embed_texts
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
    ) -> list[Floats]:
        """One array for each text: [units, D] of its tokens, words or spans, [D] of a sentence or document.

        `layers` is `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all` ([layers + 1, …]).
        Words and spans are pooled from their subwords by mean, sum, max, first or last; sentences by mean, max or cls.
        Spans are (start, end) in characters, or words marked with stars: `"the *bank* of the river"`. A text may also
        be a list of words. Long texts are read in overlapping windows, to their end.
        """
        options = EmbedOptions(unit=unit, layers=layers, pool=pool, normalise=normalise, precision=precision)
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
    ) -> list[Vectors]:
        """As `embed`, with what each unit says, its characters, and how much was read."""
        options = EmbedOptions(unit=unit, layers=layers, pool=pool, normalise=normalise, precision=precision)
        return list(embed_texts(self.encoder, self.tokenizer, texts, options, spans=spans))

    def senses(
        self, directory: str | Path, *, wordnet: str | Path | None = None, options: TagOptions | None = None
    ) -> SenseTagger:
        """A tagger of word senses, with the sense vectors that `larvatus senses build` made with this very model.

        `model.senses("runs/senses", wordnet="wordnet/").tag("They sat on the bank of the river.")`
        """
        inventory = SenseInventory.load(directory)
        inventory.check_model(model_fingerprint(self.bundle.path, self.tokenizer), str(self.bundle.path))
        return SenseTagger(self.encoder, self.tokenizer, inventory, WordNet.open(wordnet), options)

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
