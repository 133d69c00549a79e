"""What `larvatus.load` returns: one object with the verbs.

import larvatus as lv

model = lv.load("runs/law")
model.fill("The appeal was [MASK].")[0].token
model.embed(["The appeal was dismissed."], unit="word", layers="last4")[0].shape
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch

from larvatus.arrays import Floats
from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.cloze.fill import fill_blanks
from larvatus.cloze.masked_copies import Method
from larvatus.cloze.pseudo_likelihood import score_texts
from larvatus.cloze.results import Fills
from larvatus.cloze.scores import Score
from larvatus.embed.bulk.bulk import model_fingerprint
from larvatus.embed.encoded import Spans, Text
from larvatus.embed.layers import Layers
from larvatus.embed.nearest.nearest import Concordance
from larvatus.embed.nearest.search import SearchOptions, open_place, search
from larvatus.embed.options import EmbedOptions, Pool, Precision, Unit
from larvatus.embed.results import Vectors
from larvatus.embed.senses.inventory import SenseInventory
from larvatus.embed.senses.tagger import SenseTagger, TagOptions
from larvatus.embed.senses.wordnet import WordNet
from larvatus.embed.similarity import Instance, Similarities, instance, similarities
from larvatus.embed.standardise.standardise import Standardiser, find_standardiser
from larvatus.embed.vectors import embed_texts
from larvatus.errors import ArtefactError, UsageError
from larvatus.labelled.groups import with_groups
from larvatus.labelled.records import Dataset
from larvatus.labelled.texts import Paths, names_of
from larvatus.nn.device import choose_device
from larvatus.nn.memory import saying_what_to_lower
from larvatus.nn.transformer import Transformer
from larvatus.probe.attention import TextAttention, attend
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.fit.job import job_of
from larvatus.tasks.fit.run import Order, run
from larvatus.tasks.predict import Input, PredictOptions, Predictor
from larvatus.tasks.registry import TaskName, task_named
from larvatus.tasks.results import Prediction
from larvatus.text.tokenizer import Tokenizer


class Model:
    """A loaded model in evaluation mode. It holds no state that a call could change."""

    def __init__(self, bundle: Bundle, device: torch.device) -> None:
        self.bundle = bundle
        self.device = device
        self.network = bundle.network.to(device).eval()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.bundle.tokenizer

    @property
    def encoder(self) -> Transformer:
        return self.network.encoder

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

    @overload
    def fill(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, texts: str, *, top: int = ..., beam: int = ..., joint: bool = ..., words_only: bool = ...
    ) -> Fills: ...

    @overload
    def fill(
        self, texts: Sequence[str], *, top: int = ..., beam: int = ..., joint: bool = ..., words_only: bool = ...
    ) -> list[Fills]: ...

    def fill(
        self,
        texts: str | Sequence[str],
        *,
        top: int = 5,
        beam: int = 10,
        joint: bool = True,
        words_only: bool = False,
    ) -> Fills | list[Fills]:
        """The best words for the blanks of a text, each marked with the mask token; several are filled jointly.

        One text, one result; a list, a list. A model that was trained with a generator fills them through that.
        `joint=False` asks only for each blank's own candidates (`.marginals`), `words_only` leaves out pieces such as
        `##ing`, and `beam` says how many fillings of several blanks are kept on the way.
        """
        if self.network.filler is None:
            raise ArtefactError(
                f"{self.bundle.path} has no masked-lm head to fill blanks with; use a model pretrained with masked-lm"
            )
        found = [
            fill_blanks(self.network, self.tokenizer, text, top=top, beam=beam, joint=joint, words_only=words_only)
            for text in _each(texts)
        ]
        return found[0] if isinstance(texts, str) else found

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
        found = self.vectors(
            texts,
            unit=unit,
            layers=layers,
            pool=pool,
            spans=spans,
            normalise=normalise,
            precision=precision,
            standardise=standardise,
        )
        return [one.array for one in found]

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

    def score(self, texts: Sequence[str], *, method: Method = "original") -> list[Score]:
        """How well the model expects each text: its pseudo-log-likelihood, by token and by word, and perplexity.

        `original` masks each token alone (Salazar et al. 2020), `word-l2r` also what follows it in the same word
        (Kauf & Ivanova 2023), so that the end of a rare word does not give it away. Long texts are read to their end.
        """
        name = str(self.bundle.path)
        return list(score_texts(self.network, self.tokenizer, texts, method=method, name=name))

    def similarity(
        self,
        a: str,
        b: str,
        *,
        layers: Layers = "last",
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> float:
        """Cosine between two word instances, each marked: `"the *bank* of the river"`, `"the *bank* raised rates"`."""
        return float(self.similarities([a, b], layers=layers, pool=pool, standardise=standardise).matrix[0, 1])

    def similarities(
        self,
        texts: Sequence[str],
        *,
        spans: Sequence[tuple[int, int]] | None = None,
        layers: Layers = "last",
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> Similarities:
        """Cosines between word instances, one a text: between stars, or by `spans`, (start, end) in characters."""
        if spans is not None and len(spans) != len(texts):
            raise UsageError(f"{len(texts)} texts, but {len(spans)} spans; give one for each text")
        options = EmbedOptions(unit="span", layers=layers, pool=pool, standardise=self.standardiser(standardise))
        instances = [instance(text, spans[n] if spans is not None else None) for n, text in enumerate(texts)]
        return similarities(self.encoder, self.tokenizer, instances, options)

    def nearest(
        self,
        query: str | Instance,
        paths: Sequence[str] | str,
        *,
        word: str | None = None,
        any_word: bool = False,
        top: int = 10,
        layers: Layers | None = None,
        pool: Pool | None = None,
        standardise: str | Standardiser | None = None,
    ) -> Concordance:
        """Instances of a word that are nearest to the one that the query marks, in texts, an index or a vector file.

        `word` names another word than the marked one to search for; `any_word` searches all.
        """
        options = SearchOptions(
            top=top,
            word=word,
            any_word=any_word,
            layers=layers,
            pool=pool,
            standardise=self.standardiser(standardise),
        )
        place = open_place([paths] if isinstance(paths, str) else paths)
        marked = instance(query, word=word) if isinstance(query, str) else query
        return search(
            self.encoder, self.tokenizer, marked, place, options, model=self.fingerprint, find=self.standardiser
        )

    def attention(self, text: str) -> TextAttention:
        """What every head looks at in a text: `.tokens`, and `.weights` [layers, heads, T, T], a row for each token."""
        return attend(self.encoder, self.tokenizer, text)

    def senses(
        self, directory: str | Path, *, wordnet: str | Path | None = None, options: TagOptions | None = None
    ) -> SenseTagger:
        """A tagger of word senses, with the sense vectors that `larvatus senses build` made with this very model.

        `model.senses("runs/senses", wordnet="wordnet/").tag("They sat on the bank of the river.")`
        """
        inventory = SenseInventory.load(directory)
        inventory.check_model(self.fingerprint, str(self.bundle.path))
        return SenseTagger(self.encoder, self.tokenizer, inventory, WordNet.open(wordnet), options)

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is an iterable of texts
        self,
        texts: str | tuple[str, ...],
        *,
        merge: Merge = ...,
        truncate: bool = ...,
        overlap: int | None = ...,
        length: int | None = ...,
        batch_tokens: int = ...,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        texts: Iterable[Input],
        *,
        merge: Merge = ...,
        truncate: bool = ...,
        overlap: int | None = ...,
        length: int | None = ...,
        batch_tokens: int = ...,
    ) -> list[Prediction]: ...

    def predict(
        self,
        texts: str | tuple[str, ...] | Iterable[Input],
        *,
        merge: Merge = "mean",
        truncate: bool = False,
        overlap: int | None = None,
        length: int | None = None,
        batch_tokens: int = 0,
    ) -> Prediction | list[Prediction]:
        """What the head that `larvatus finetune` gave the model says of texts: one text, one answer; a list, a list.

        A tuple is one input: a pair of texts for a classifier, a question and its passage, the words of a text for a
        tagger or a finder of spans (in a list of inputs its words may be a list too). Long texts are read in windows
        that overlap, whose scores are merged (`mean` or `max` of a class; of a word the window where it sees most);
        `truncate` reads the first alone. Every answer has its `coverage`.
        """
        options = PredictOptions(merge=merge, truncate=truncate, overlap=overlap, length=length, tokens=batch_tokens)
        predictor = Predictor(self.bundle, options, self.device)
        if isinstance(texts, str | tuple):
            return next(predictor.predict([texts]))
        return list(predictor.predict(texts))

    def __call__(self, text: str | tuple[str, ...]) -> Prediction:
        """`tagger("Mt. Sanitas is in Sunshine Canyon.").entities`: `predict` for one text."""
        if not isinstance(text, str | tuple):
            raise UsageError(f"a model is called with one text, not {type(text).__name__}; several go to predict")
        return self.predict(text)

    def __repr__(self) -> str:
        model = self.bundle.model
        parameters = sum(p.numel() for p in self.network.parameters())
        heads = ", ".join(self.network.heads) or "no heads"
        return (
            f"<Model {self.bundle.path}: {model.layers} layers, {model.hidden} hidden, {model.heads} heads, "
            f"{parameters / 1e6:.1f}M parameters, {self.tokenizer.size:,} tokens, {heads}, on {self.device}>"
        )


def _each(texts: str | Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


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
    chosen = choose_device(device)
    with saying_what_to_lower("take a smaller model, or end other programs"):
        return Model(load_bundle(path, allow_nan=allow_nan, revision=revision, online=online), chosen)


def finetune(
    task: TaskName,
    model: str | Path | Model,
    *,
    train: Paths | Dataset[Any],
    dev: Paths | Dataset[Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    group: str | None = None,
    **settings: Any,
) -> Model:
    """Fine-tune a model to `classify` texts, `tag` words, find nested `spans` or `answer` questions.

    `train` and `dev` are files (columns are guessed) or data sets that `larvatus.labelled` has read; without `dev`
    a tenth of the examples is held out, those with the same value in the column `group` together. With `out`, the model
    is saved there (with `overwrite` in place of one that stands there) and the run can be resumed. Settings are
    those of the command line: `epochs=3, batch=16, rate=5e-5, trained="lora", crf=True, pool="mean", seeds=3`, …

    `lv.finetune("tag", "bert-base", train="train.conll", dev="dev.conll", crf=True)("Mt. Sanitas is near.").entities`
    """
    chosen = task_named(task)
    loaded = model if isinstance(model, Model) else load(model, device=settings.get("device", "auto"))
    job = job_of(task, {"device": str(loaded.device), **settings})
    examples = train if isinstance(train, Dataset) else chosen.read(train)
    if group is not None:
        if isinstance(train, Dataset) or dev is not None:
            raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
        examples = with_groups(examples, names_of(train), group)
    held = dev
    if dev is not None and not isinstance(dev, Dataset):
        held = chosen.read(dev, kind=examples.kind)
    order = Order(
        task=task,
        bundle=loaded.bundle,
        name=str(loaded.bundle.path),
        train=examples,
        dev=held,
        out=Path(out or ""),
        resume=resume,
        overwrite=overwrite,
    )
    if out is None:
        return Model(order.finetune(examples, job).bundle, loaded.device)
    run(order, job)
    return load(out, device=str(loaded.device))
