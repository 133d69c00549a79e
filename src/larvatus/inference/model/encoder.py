"""What any loaded encoder can do, whatever heads it has: vectors of texts and words, and what is made of them.

model.embed(["the river", "the town"]).shape                        # [2, D]
model.similarity("the *bank* of the river", "the *bank* raised rates")
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.tabular import ResultList
from larvatus.core.text_inputs import checked_text, checked_texts, checked_texts_or_words
from larvatus.data.text.documents import ReadOptions, Skipped
from larvatus.data.text.languages import LanguageSource, read_languages
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.interpret.attention import TextAttention, attend
from larvatus.inference.maps.instances import FindOptions, find_instances
from larvatus.inference.maps.word_map import MapOptions, WordMap, map_instances
from larvatus.inference.model.elsewhere import Origin, loaded_elsewhere
from larvatus.inference.search.nearest import Concordance
from larvatus.inference.search.search import SearchOptions, open_place, search
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagger import SenseTagger, TagOptions
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.encoded import Spans, Text
from larvatus.inference.vectors.fingerprints import model_fingerprint
from larvatus.inference.vectors.layers import Layers
from larvatus.inference.vectors.options import EmbedOptions, Pool
from larvatus.inference.vectors.results import Vectors
from larvatus.inference.vectors.similarity import Instance, Similarities, instance, similarities
from larvatus.inference.vectors.standardise.standardise import Standardiser, find_standardiser
from larvatus.inference.vectors.units import PARTS, Unit
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.bundle.directory import Bundle
from larvatus.models.nn.encoder import Encoder


class EncoderModel:
    """A loaded network in evaluation mode, with its vocabulary. It holds no state that a call could change."""

    def __init__(self, bundle: Bundle, device: torch.device, *, number: str = "", origin: Origin | None = None) -> None:
        """`number` is what its weights were rounded to, where they were: int8; `origin` how it is loaded elsewhere."""
        self.bundle = bundle
        self.origin = origin
        self.device = device
        self.number = number
        self.network = bundle.network.to(device).eval()

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker on another machine loads the model there: weights are never pickled."""
        if self.origin is None:
            raise UsageError("a model that was made in memory cannot be sent to a cluster; save it, and load it")
        return loaded_elsewhere, (self.origin, self.fingerprint)

    def __copy__(self) -> Self:
        """A second object over the same weights; nothing is loaded."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    @property
    def wanted_device(self) -> str:
        """As it was asked for: auto, cpu or cuda."""
        return str(self.device) if self.origin is None else self.origin.device

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        return self.bundle.tokenizer

    @property
    def encoder(self) -> Encoder:
        """The network without its heads: `encoder(batch)` gives the states of the last layer."""
        return self.network.encoder

    @cached_property
    def fingerprint(self) -> str:
        """Which weights, settings and vocabulary these are."""
        weights = model_fingerprint(self.bundle.path, self.tokenizer)
        return f"{weights}-{self.number}" if self.number else weights

    def standardiser(self, given: str | Standardiser | None) -> Standardiser | None:
        """A standardiser that was fitted for this very model; one of another model is refused.

        Args:
            given: Its name in the model's directory, a file, or one that is loaded; None for none.

        Returns:
            The standardiser, or None.

        Example:
            >>> model.standardiser("z").unit
            'word'
        """
        standardiser = find_standardiser(self.bundle.path, given) if isinstance(given, str) else given
        if standardiser is not None:
            standardiser.check_model(self.fingerprint, self.bundle.path)
        return standardiser

    def embed(
        self,
        texts: str | Sequence[Text],
        *,
        unit: Unit = "sentence",
        layers: Layers = "last",
        pool: Pool = "mean",
        spans: Spans | Sequence[Spans] | None = None,
        **settings: Any,
    ) -> Any:
        """Vectors as arrays: a matrix of sentences or documents, one array [units, D] for each text of other units.

        Args:
            texts: One text, or several; one of several may also be a list of words.
            unit: What gets a vector: `token`, `word`, `span`, `sentence` or `document`.
            layers: `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all` ([layers + 1, …]).
            pool: Words and spans: mean, sum, max, first or last of their subwords; sentences: mean, max or cls.
            spans: Of unit `span`, (start, end) in characters: a list for one text, a list of lists for several. Without
                it they are marked with stars, `"the *bank* of a river"`.
            **settings: `normalise` (length 1), `standardise` (the name of a standardiser that `larvatus isotropy fit`
                saved with the model, eq. 11.10 to 11.12), `overlap` (tokens that windows of a long text share),
                `precision` (`fp32`, `bf16`), `tokens` (of a batch).

        Returns:
            Of sentences and documents: [D] for one text, [n, D] for several. Of other units: [units, D] for one text, a
            list of such for several. Long texts are read in overlapping windows, to their end.

        Example:
            >>> model.embed(["the river ran", "the town"]).shape, model.embed("the river", unit="word").shape
            ((2, 16), (2, 16))
            >>> model.embed("the river", unit="span", spans=[(4, 9)]).shape
            (1, 16)
        """
        listed, single = self._vectors(texts, unit=unit, layers=layers, pool=pool, spans=spans, **settings)
        arrays = [vectors.array for vectors in listed]
        if single:
            return arrays[0]
        if unit in PARTS:
            return arrays
        empty = (0, self.encoder.depth + 1, self.encoder.width) if layers == "all" else (0, self.encoder.width)
        return np.stack(arrays) if arrays else np.zeros(empty, np.float32)

    @overload
    def vectors(self, texts: str, **settings: Any) -> Vectors: ...

    @overload
    def vectors(self, texts: Sequence[Text], **settings: Any) -> ResultList[Vectors]: ...

    def vectors(self, texts: str | Sequence[Text], **settings: Any) -> Vectors | ResultList[Vectors]:
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
        listed, single = self._vectors(texts, **{"unit": "word", **settings})
        return listed[0] if single else ResultList(listed)

    def _vectors(
        self, texts: str | Sequence[Text], *, spans: Any = None, standardise: Any = None, **settings: Any
    ) -> tuple[list[Vectors], bool]:
        """Vectors of each text, and whether one text was given by itself."""
        _check_names("embed", settings, EmbedOptions.__struct_fields__)
        options = EmbedOptions(standardise=self.standardiser(standardise), **settings)
        inputs, single = checked_texts_or_words(texts)
        if single:
            spans = None if spans is None else [spans]
        listed = list(embed_texts(self.encoder, self.tokenizer, inputs, options, spans=spans))
        warn_of_other_language(inputs, self.tokenizer, frames=4)
        return listed, single

    def similarity(
        self,
        a: str,
        b: str,
        *,
        layers: Layers = "last",
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> float:
        """Cosine between two word instances, each marked: `"the *bank* of the river"`, `"the *bank* raised rates"`.

        Args:
            a: A text with one word between stars.
            b: Another.
            layers: As in `embed`.
            pool: How subwords become one vector: mean, sum, max, first or last.
            standardise: A standardiser, or its name.

        Returns:
            A number from -1 to 1.

        Example:
            >>> -1 <= model.similarity("the *bank* of the river", "a *bank* in town") <= 1
            True
        """
        both = [checked_text(a, "a"), checked_text(b, "b")]
        return float(self.similarities(both, layers=layers, pool=pool, standardise=standardise).matrix[0, 1])

    def similarities(
        self,
        texts: Sequence[str],
        *,
        spans: Sequence[tuple[int, int]] | None = None,
        layers: Layers = "last",
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> Similarities:
        """Cosines between word instances, one a text.

        Args:
            texts: Two or more texts, each with one word between stars.
            spans: The word of each text by its characters, (start, end), in place of stars.
            layers: As in `embed`.
            pool: How subwords become one vector: mean, sum, max, first or last.
            standardise: A standardiser, or its name.

        Returns:
            The instances, and `.matrix` of their cosines; printed, it is a table.

        Example:
            >>> model.similarities(["the *river*", "a *river*", "the *bank*"]).matrix.shape
            (3, 3)
        """
        listed, _ = checked_texts(texts)
        if spans is not None and len(spans) != len(listed):
            raise UsageError(f"{len(listed)} texts, but {len(spans)} spans; give one for each text")
        options = EmbedOptions(unit="span", layers=layers, pool=pool, standardise=self.standardiser(standardise))
        instances = [instance(text, spans[n] if spans is not None else None) for n, text in enumerate(listed)]
        return similarities(self.encoder, self.tokenizer, instances, options)

    @overload
    def nearest(self, query: str | Instance, paths: str | Sequence[str], **settings: Any) -> Concordance: ...

    @overload
    def nearest(
        self, query: Sequence[str | Instance], paths: str | Sequence[str], **settings: Any
    ) -> ResultList[Concordance]: ...

    def nearest(
        self,
        query: str | Instance | Sequence[str | Instance],
        paths: str | Sequence[str],
        *,
        standardise: str | Standardiser | None = None,
        text: str | None = None,
        **settings: Any,
    ) -> Concordance | ResultList[Concordance]:
        """Instances of a word that are nearest to the one that the query marks, in texts, an index or a vector file.

        Args:
            query: A text with a word between stars, or several such.
            paths: Files or folders of text, an index of `larvatus similar index`, or a file of `larvatus embed`.
            standardise: A standardiser, or its name; an index knows its own.
            text: Column of tables that holds the text; guessed by default.
            **settings: `top` (how many, 10), `word` (search for another word than the marked one), `any_word` (search
                all words), `layers` and `pool` (of text; an index or a file knows its own).

        Returns:
            A concordance for one query, a list for several: `.hits`, nearest first, each with its `.cosine` and `.row`.

        Example:
            >>> len(model.nearest("the *bank* of the river", "my_texts/", top=3).hits)
            3
        """
        _check_names("nearest", settings, SearchOptions.__struct_fields__)
        options = SearchOptions(standardise=self.standardiser(standardise), **settings)
        options = options.with_text(text)
        place = open_place([paths] if isinstance(paths, str) else paths)
        marked, single = _instances(query, options.word)
        hits = [search(self, word, place, options) for word in marked]
        return hits[0] if single else ResultList(hits)

    def map(
        self,
        words: str | Sequence[str],
        corpus: LanguageSource | Sequence[LanguageSource],
        *,
        text: str | None = None,
        reading: ReadOptions | None = None,
        skipped: Skipped | None = None,
        **settings: Any,
    ) -> WordMap:
        """Instances of words in a corpus as points in the plane: near means used alike (Fig. 11.7).

        Args:
            words: One word, or several.
            corpus: Text to look for them in: files, folders, globs.
            text: Column of tables that holds the text; guessed by default.
            reading: How the text is read.
            skipped: Counts what reading left out.
            **settings: `limit` (instances, a random sample of more), `cased`, `language`, `sentences`, `seed`,
                `layers`, `pool`, `standardise`, `method` (`auto`, `umap`, `pca`), `clusters`.

        Returns:
            The map: `.points`, `.instances`, `.clusters`; `larvatus.inference.maps.page.map_page` makes a page of it.

        Example:
            >>> model.map("river", "my_texts/", method="pca", clusters=1).words
            ('river',)
        """
        _check_names("map", settings, [*FindOptions.__struct_fields__, *MapOptions.__struct_fields__])
        settings["standardise"] = self.standardiser(settings.get("standardise"))
        look = FindOptions(**{name: settings[name] for name in FindOptions.__struct_fields__ if name in settings})
        draw = MapOptions(**{name: settings[name] for name in MapOptions.__struct_fields__ if name in settings})
        places = [corpus] if isinstance(corpus, LanguageSource) else corpus
        documents = read_languages(places, options=(reading or ReadOptions()).named(text), skipped=skipped)
        instances = find_instances(documents, checked_texts(words, "words").texts, look)
        return map_instances(self.encoder, self.tokenizer, instances, draw)

    @overload
    def attention(self, texts: str) -> TextAttention: ...  # type: ignore[overload-overlap]  # as in `nearest`

    @overload
    def attention(self, texts: Sequence[str]) -> ResultList[TextAttention]: ...

    def attention(self, texts: str | Sequence[str]) -> TextAttention | ResultList[TextAttention]:
        """What every head looks at in a text.

        Args:
            texts: One text that the model can read at once, or several.

        Returns:
            For one text its `.tokens` and `.weights` [layers, heads, T, T], a row for each token; a list for several.

        Example:
            >>> model.attention("the river").weights.shape
            (2, 2, 4, 4)
        """
        listed, single = checked_texts(texts)
        weights = [attend(self.encoder, self.tokenizer, text) for text in listed]
        return weights[0] if single else ResultList(weights)

    def senses(
        self, directory: str | Path, *, wordnet: str | Path | None = None, options: TagOptions | None = None
    ) -> SenseTagger:
        """A tagger of word senses, with the sense vectors that `larvatus senses build` made with this very model.

        `model.senses("runs/senses", wordnet="wordnet/").tag("They sat on the bank of the river.")`

        Args:
            directory: What `larvatus senses build` wrote.
            wordnet: The folder of WordNet's files; by default Debian's.
            options: How senses are chosen: `backoff`, `standardise`, `discourse`, `prior`.

        Returns:
            The tagger; its `tag` takes one text, or several.

        Example:
            >>> model.senses("my_texts")
            Traceback (most recent call last):
            larvatus.core.errors.ArtefactError: ...
        """
        inventory = SenseInventory.load(directory)
        inventory.check_model(self.fingerprint, str(self.bundle.path))
        return SenseTagger(self.encoder, self.tokenizer, inventory, WordNet.open(wordnet), options)


def _instances(query: Any, word: str | None) -> tuple[list[Instance], bool]:
    """The word that each query marks, and whether one query was given by itself."""
    if isinstance(query, Instance):
        return [query], True
    if isinstance(query, list | tuple) and any(isinstance(each, Instance) for each in query):
        several = enumerate(query)
        texts = [each if isinstance(each, Instance) else checked_text(each, f"query[{at}]") for at, each in several]
        return [each if isinstance(each, Instance) else instance(each, word=word) for each in texts], False
    listed, single = checked_texts(query, "query")
    return [instance(text, word=word) for text in listed], single


def _check_names(method: str, settings: dict[str, Any], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise UsageError(f"{method} has no setting {name!r}{did_you_mean(name, known)}")
