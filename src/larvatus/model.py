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

import numpy as np
import torch

from larvatus.bundle.directory import Bundle, check_model_directory, load_bundle, read_card, save_bundle
from larvatus.cloze.fill import fill_blanks
from larvatus.cloze.masked_copies import Method
from larvatus.cloze.pseudo_likelihood import score_texts
from larvatus.cloze.results import Fills
from larvatus.cloze.scores import Score
from larvatus.embed.encoded import Spans, Text
from larvatus.embed.fingerprints import model_fingerprint
from larvatus.embed.layers import Layers
from larvatus.embed.map.instances import FindOptions, find_instances
from larvatus.embed.map.word_map import MapOptions, WordMap, map_instances
from larvatus.embed.nearest.nearest import Concordance
from larvatus.embed.nearest.search import SearchOptions, open_place, search
from larvatus.embed.options import EmbedOptions, Pool
from larvatus.embed.results import Vectors
from larvatus.embed.senses.inventory import SenseInventory
from larvatus.embed.senses.tagger import SenseTagger, TagOptions
from larvatus.embed.senses.wordnet import WordNet
from larvatus.embed.similarity import Instance, Similarities, instance, similarities
from larvatus.embed.standardise.standardise import Standardiser, find_standardiser
from larvatus.embed.units import PARTS, Unit
from larvatus.embed.vectors import embed_texts
from larvatus.errors import ArtefactError, UsageError, did_you_mean
from larvatus.nn.device import choose_device
from larvatus.nn.encoder import Encoder
from larvatus.nn.memory import saying_what_to_lower
from larvatus.probe.attention import TextAttention, attend
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.predict import Input, PredictOptions, Predictor
from larvatus.tasks.results import Prediction
from larvatus.text.documents import ReadOptions, Skipped
from larvatus.text.languages import Given, read_languages
from larvatus.text.tokenizer import Tokenizer
from larvatus.version import VERSION


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
    def encoder(self) -> Encoder:
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

        Args:
            texts: One text, or several.
            top: How many candidates.
            beam: Fillings of several blanks that are kept on the way.
            joint: Fill several blanks together; else only each blank's own candidates (`.marginals`) are looked for.
            words_only: Leave out pieces such as `##ing` that only go on a word.

        Returns:
            One result for one text, a list for several. A model that was trained with a generator fills through that.

        Example:
            >>> len(model.fill("the [MASK] ran", top=3))
            3
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
        texts: str | Sequence[Text],
        *,
        unit: Unit = "sentence",
        layers: Layers = "last",
        pool: Pool = "mean",
        spans: Sequence[Spans] | None = None,
        **settings: Any,
    ) -> Any:
        """Vectors as arrays: a matrix of sentences or documents, one array [units, D] for each text of other units.

        Args:
            texts: One text, or several; a text may also be a list of words.
            unit: What gets a vector: `token`, `word`, `span`, `sentence` or `document`.
            layers: `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all` ([layers + 1, …]).
            pool: Words and spans: mean, sum, max, first or last of their subwords; sentences: mean, max or cls.
            spans: Of unit `span`, (start, end) in characters; or words marked with stars, `"the *bank* of a river"`.
            **settings: `normalise` (length 1), `precision` (`fp32`, `bf16`), `standardise` (the name of a standardiser
                that `larvatus isotropy fit` saved with the model, eq. 11.10 to 11.12).

        Returns:
            Of sentences and documents: [D] for one text, [n, D] for several. Of other units: [units, D] for one text, a
            list of such for several. Long texts are read in overlapping windows, to their end.

        Example:
            >>> model.embed(["the river ran", "the town"]).shape, model.embed("the river", unit="word").shape
            ((2, 16), (2, 16))
        """
        several = [texts] if isinstance(texts, str) else texts
        arrays = [
            each.array for each in self._vectors(several, unit=unit, layers=layers, pool=pool, spans=spans, **settings)
        ]
        if isinstance(texts, str):
            return arrays[0]
        if unit in PARTS:
            return arrays
        return np.stack(arrays) if arrays else np.zeros((0, self.encoder.config.hidden), np.float32)

    @overload
    def vectors(self, texts: str, **settings: Any) -> Vectors: ...

    @overload
    def vectors(self, texts: Sequence[Text], **settings: Any) -> list[Vectors]: ...

    def vectors(self, texts: str | Sequence[Text], **settings: Any) -> Vectors | list[Vectors]:
        """As `embed`, with what each unit says, its characters, and how much was read.

        Args:
            texts: One text, or several.
            **settings: As those of `embed`; the unit is `word` by default.

        Returns:
            `Vectors` for one text, a list for several.

        Example:
            >>> model.vectors("the river").units
            ('the', 'river')
        """
        found = self._vectors([texts] if isinstance(texts, str) else texts, **{"unit": "word", **settings})
        return found[0] if isinstance(texts, str) else found

    def _vectors(
        self, texts: Sequence[Text], *, spans: Sequence[Spans] | None = None, standardise: Any = None, **settings: Any
    ) -> list[Vectors]:
        for name in settings:
            if name not in EmbedOptions.__struct_fields__:
                raise UsageError(f"embed has no setting {name!r}{did_you_mean(name, EmbedOptions.__struct_fields__)}")
        options = EmbedOptions(standardise=self.standardiser(standardise), **settings)
        return list(embed_texts(self.encoder, self.tokenizer, texts, options, spans=spans))

    @overload
    def score(self, texts: str, *, method: Method = ...) -> Score: ...  # type: ignore[overload-overlap]  # see `fill`

    @overload
    def score(self, texts: Sequence[str], *, method: Method = ...) -> list[Score]: ...

    def score(self, texts: str | Sequence[str], *, method: Method = "original") -> Score | list[Score]:
        """How well the model expects each text: its pseudo-log-likelihood, by token and by word, and perplexity.

        Args:
            texts: One text, or several. Long ones are read to their end.
            method: `original` masks each token alone (Salazar et al. 2020), `word-l2r` also what follows it in the same
                word (Kauf & Ivanova 2023), so that the end of a rare word does not give it away.

        Returns:
            One score for one text, a list for several.

        Example:
            >>> [word.text for word in model.score("the river").words]
            ['the', 'river']
        """
        name = str(self.bundle.path)
        found = list(score_texts(self.network, self.tokenizer, _each(texts), method=method, name=name))
        return found[0] if isinstance(texts, str) else found

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
        return search(self, marked, place, options)

    def map(
        self,
        words: str | Sequence[str],
        corpus: Given | Sequence[Given],
        *,
        reading: ReadOptions | None = None,
        skipped: Skipped | None = None,
        **settings: Any,
    ) -> WordMap:
        """Instances of words in a corpus as points in the plane: near means used alike (Fig. 11.7).

        Args:
            words: One word, or several.
            corpus: Text to look for them in: files, folders, globs.
            reading: How the text is read.
            skipped: Counts what reading left out.
            **settings: `limit` (instances, a random sample of more), `cased`, `language`, `sentences`, `seed`,
                `layers`, `pool`, `standardise`, `method` (`auto`, `umap`, `pca`), `clusters`.

        Returns:
            The map: `.points`, `.instances`, `.clusters`; `larvatus.embed.map.page.map_page` makes a page of it.

        Example:
            >>> model.map("river", texts, method="pca", clusters=1).words
            ('river',)
        """
        known = {*FindOptions.__struct_fields__, *MapOptions.__struct_fields__}
        for name in settings:
            if name not in known:
                raise UsageError(f"map has no setting {name!r}{did_you_mean(name, known)}")
        settings["standardise"] = self.standardiser(settings.get("standardise"))
        look = FindOptions(**{name: settings[name] for name in FindOptions.__struct_fields__ if name in settings})
        draw = MapOptions(**{name: settings[name] for name in MapOptions.__struct_fields__ if name in settings})
        places = [corpus] if isinstance(corpus, Given) else corpus
        documents = read_languages(places, options=reading or ReadOptions(), skipped=skipped)
        found = find_instances(documents, [words] if isinstance(words, str) else words, look)
        return map_instances(self.encoder, self.tokenizer, found, draw)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model into a directory, in the Hugging Face layout where there is one that fits.

        Args:
            directory: A new directory.
            overwrite: Replace a model that stands there.

        Returns:
            The directory.

        Example:
            >>> load(model.save(folder / "copy")).tokenizer.size == model.tokenizer.size
            True
        """
        out, bundle = Path(directory), self.bundle
        check_model_directory(out, overwrite=overwrite, inputs=[bundle.path])
        before = read_card(bundle)
        said = f"Saved by Larvatus {VERSION} from a model in memory, which was made from `{bundle.path}`."
        card = f"# {out.name}\n\n{said}\n" + (f"\n## The card of `{bundle.path}`\n\n{before}" if before else "")
        try:
            save_bundle(
                out,
                network=self.network.cpu(),
                objective_configs=bundle.objectives,
                tokenizer=self.tokenizer,
                recipe=bundle.recipe,
                lineage={"parent": str(bundle.path), "parent_lineage": bundle.lineage},
                card=card,
                family=bundle.family,
            )
        finally:
            self.network.to(self.device)
        return out

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

    Args:
        path: A directory, or `org/name` or `org/name@COMMIT`, which is looked up in the local cache.
        device: `auto`, `cpu`, `cuda`, or a device of torch.
        allow_nan: Take weights that are no numbers, rather than refuse them.
        revision: The commit of a hub model, 40 digits.
        online: Download a hub model that is not in the cache; wants a revision.

    Returns:
        The model, in evaluation mode.

    Example:
        >>> load(directory, device="cpu").encoder.config.layers
        2
    """
    chosen = choose_device(device)
    with saying_what_to_lower("take a smaller model, or end other programs"):
        return Model(load_bundle(path, allow_nan=allow_nan, revision=revision, online=online), chosen)
