"""Methods of any loaded encoder, whatever heads it has: vectors of texts and words, similarity, maps, senses.

model.embed(["the river", "the town"]).shape                        # [2, D]
model.similarity("the *bank* of the river", "the *bank* raised rates")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.tables import ResultList
from larvatus.core.text_inputs import checked_text, checked_texts, checked_texts_or_words
from larvatus.data.text.documents import ReadOptions, Skipped
from larvatus.data.text.languages import LanguageSource, read_languages
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.inference.maps.instances import FindOptions, find_instances
from larvatus.inference.maps.word_map import MapOptions, WordMap, map_instances
from larvatus.inference.search.concordance import Concordance
from larvatus.inference.search.search import SearchOptions, open_source, search
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagger import SenseOptions, SenseTagger
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.layers import PARTS, Layers, Unit
from larvatus.inference.vectors.plan import Spans, Text
from larvatus.inference.vectors.pooling import (
    EmbedOptions,
    Pool,
    embed_options,
    vector_encoder,
    vector_head,
    vector_size,
    word_layers,
)
from larvatus.inference.vectors.similarity import Similarities, WordInstance, similarities, word_instance
from larvatus.inference.vectors.standardise import Standardiser, standardiser_for
from larvatus.inference.vectors.vectors import Vectors, embed_matrix, embed_texts
from larvatus.models.loaded import LoadedModel

if TYPE_CHECKING:
    from larvatus.inference.model.keywords import (
        ModelEmbedKeywords,
        ModelMapKeywords,
        ModelNearestKeywords,
        ModelVectorsKeywords,
    )


class EncoderModel(LoadedModel):
    """A loaded encoder with any heads. No call changes its state."""

    def standardiser(self, given: str | Standardiser | None) -> Standardiser | None:
        """A standardiser that was fitted for this model; one of another model is refused.

        Args:
            given: Its name in the model's directory, a file, or a standardiser; None for none.

        Returns:
            The standardiser, or None.

        Example:
            >>> model.standardiser("z").unit
            'word'
        """
        return standardiser_for(self, given)

    def embed(
        self,
        texts: str | Sequence[Text],
        *,
        unit: Unit = "sentence",
        layers: Layers | None = None,
        pool: Pool | None = None,
        spans: Spans | Sequence[Spans] | None = None,
        **settings: Unpack[ModelEmbedKeywords],
    ) -> Any:
        """Vectors as arrays: a matrix for sentences or documents, one array [units, D] per text for other units.

        Args:
            texts: One text, or several; a text in a list can be a list of words.
            unit: Unit that gets a vector: `token`, `word`, `span`, `sentence` or `document`.
            layers: `last`, `last4` (mean), `last4-sum`, a number, a list of weights, or `all` ([layers + 1, …]). By
                default the last; for tokens, words and spans the model's own (`bundle.word_layers`, mostly the last).
            pool: Words and spans: mean, sum, max, first or last of their subwords; sentences: mean, max or cls. By
                default the mean; for whole texts of a sentence encoder, or of a model with a sentence adapter, its own
                pooling, with its linear layers and normalisation; `mean` is then the plain mean of its tokens.
            spans: For unit `span`, (start, end) in characters: a list for one text, a list of lists for several.
                Without it, spans are marked with stars, `"the *bank* of a river"`.
            **settings: `normalise` (length 1), `standardise` (the name of a standardiser that `larvatus isotropy fit`
                saved with the model, eq. 11.10 to 11.12), `overlap` (tokens that windows of a long text share),
                `precision` (`fp32`, `bf16`), `tokens` (of a batch).

        Returns:
            For sentences and documents: [D] for one text, [n, D] for several. For other units: [units, D] for one text,
            a list of arrays for several. Long texts are read completely, in overlapping windows.

        Example:
            >>> model.embed(["the river ran", "the town"]).shape, model.embed("the river", unit="word").shape
            ((2, 16), (2, 16))
            >>> model.embed("the river", unit="span", spans=[(4, 9)]).shape
            (1, 16)
        """
        if unit in PARTS or spans is not None:
            listed, single = self._vectors(texts, unit=unit, layers=layers, pool=pool, spans=spans, **settings)
            arrays = [vectors.array for vectors in listed]
            return arrays[0] if single else arrays
        inputs, single, options = self._checked(texts, unit=unit, layers=layers, pool=pool, **settings)
        encoder, head = vector_encoder(self, options), vector_head(self, options)
        matrix = embed_matrix(encoder, self.tokenizer, inputs, options, head=head)
        warn_of_other_language(inputs, self.tokenizer)
        if matrix is None:
            size = vector_size(self, options)
            return np.zeros((0, self.encoder.depth + 1, size) if layers == "all" else (0, size), np.float32)
        return matrix[0] if single else matrix

    @overload
    def vectors(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, texts: str, **settings: Unpack[ModelVectorsKeywords]
    ) -> Vectors: ...

    @overload
    def vectors(self, texts: Sequence[Text], **settings: Unpack[ModelVectorsKeywords]) -> ResultList[Vectors]: ...

    def vectors(
        self, texts: str | Sequence[Text], **settings: Unpack[ModelVectorsKeywords]
    ) -> Vectors | ResultList[Vectors]:
        """Like `embed`, with the text and characters of each unit, and how much was read.

        Args:
            texts: One text, or several.
            **settings: Those of `embed`; the unit is `word` by default.

        Returns:
            `Vectors` for one text, a list for several.

        Example:
            >>> model.vectors("the river").units
            ('the', 'river')
        """
        listed, single = self._vectors(texts, **{"unit": "word", **settings})
        return listed[0] if single else ResultList(listed)

    def _checked(
        self, texts: str | Sequence[Text], *, standardise: Any = None, **settings: Any
    ) -> tuple[Sequence[Text], bool, EmbedOptions]:
        """The texts, whether a single one was given, and the options."""
        _check_names("embed", settings, EmbedOptions.__struct_fields__)
        options = embed_options(self, standardise=self.standardiser(standardise), **settings)
        return *checked_texts_or_words(texts), options

    def _vectors(
        self, texts: str | Sequence[Text], *, spans: Any = None, **settings: Any
    ) -> tuple[list[Vectors], bool]:
        """Vectors of each text, and whether a single text was given."""
        inputs, single, options = self._checked(texts, **settings)
        if single:
            spans = None if spans is None else [spans]
        encoder, head = vector_encoder(self, options), vector_head(self, options)
        listed = list(embed_texts(encoder, self.tokenizer, inputs, options, spans=spans, head=head))
        warn_of_other_language(inputs, self.tokenizer, frames=4)
        return listed, single

    def similarity(
        self,
        a: str,
        b: str,
        *,
        layers: Layers | None = None,
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> float:
        """Cosine between two word instances, each marked: `"the *bank* of the river"`, `"the *bank* raised rates"`.

        Args:
            a: A text with one word between stars.
            b: Another.
            layers: As in `embed`.
            pool: Pooling of subwords: mean, sum, max, first or last.
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
        layers: Layers | None = None,
        pool: Pool = "mean",
        standardise: str | Standardiser | None = None,
    ) -> Similarities:
        """Cosines between word instances, one per text.

        Args:
            texts: Two or more texts, each with one word between stars.
            spans: Characters (start, end) of the word of each text, instead of stars.
            layers: As in `embed`.
            pool: Pooling of subwords: mean, sum, max, first or last.
            standardise: A standardiser, or its name.

        Returns:
            The instances, and `.matrix` of their cosines; it prints as a table.

        Example:
            >>> model.similarities(["the *river*", "a *river*", "the *bank*"]).matrix.shape
            (3, 3)
        """
        listed, _ = checked_texts(texts)
        if spans is not None and len(spans) != len(listed):
            raise UsageError(f"{len(listed)} texts, but {len(spans)} spans; give one for each text")
        options = embed_options(self, unit="span", layers=layers, pool=pool, standardise=self.standardiser(standardise))
        instances = [word_instance(text, spans[n] if spans is not None else None) for n, text in enumerate(listed)]
        return similarities(self.encoder, self.tokenizer, instances, options)

    @overload
    def nearest(  # type: ignore[overload-overlap]  # as in `vectors`
        self, query: str | WordInstance, paths: str | Sequence[str], **settings: Unpack[ModelNearestKeywords]
    ) -> Concordance: ...

    @overload
    def nearest(
        self, query: Sequence[str | WordInstance], paths: str | Sequence[str], **settings: Unpack[ModelNearestKeywords]
    ) -> ResultList[Concordance]: ...

    def nearest(
        self,
        query: str | WordInstance | Sequence[str | WordInstance],
        paths: str | Sequence[str],
        **settings: Unpack[ModelNearestKeywords],
    ) -> Concordance | ResultList[Concordance]:
        """The instances of a word nearest to the one that the query marks, in texts, an index or a vector file.

        Args:
            query: A text with a word between stars, or several such.
            paths: Files or folders of text, an index of `larvatus similar index`, or a file of `larvatus embed`.
            **settings: `top` (how many, 10), `word` (search for another word than the marked one), `any_word` (search
                all words), `layers`, `pool` and `standardise` (for text; an index or a file has its own), `text`
                (column of tables that holds the text; guessed by default).

        Returns:
            A concordance for one query, a list for several: `.hits`, nearest first, each with its `.cosine` and `.row`.

        Example:
            >>> len(model.nearest("the *bank* of the river", "my_texts/", top=3).hits)
            3
        """
        _check_names("nearest", settings, [*SearchOptions.__struct_fields__, "text"])
        given: dict[str, Any] = {**settings, "standardise": self.standardiser(settings.get("standardise"))}
        text = given.pop("text", None)
        options = SearchOptions(**given).with_text(text)
        place = open_source([paths] if isinstance(paths, str) else paths)
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
        **settings: Unpack[ModelMapKeywords],
    ) -> WordMap:
        """Instances of words in a corpus as points in the plane: nearby points are used alike (Fig. 11.7).

        Args:
            words: One word, or several.
            corpus: Text to search: files, folders, globs.
            text: Column of tables that holds the text; guessed by default.
            reading: Options for reading text.
            skipped: Counts of skipped text.
            **settings: `limit` (instances, a random sample of more), `cased`, `language`, `sentences`, `seed`,
                `layers`, `pool`, `standardise`, `method` (`auto`, `umap`, `pca`), `clusters`.

        Returns:
            The map: `.points`, `.instances`, `.clusters`; `inference.maps.picture.map_page` makes a page of it.

        Example:
            >>> model.map("river", "my_texts/", method="pca", clusters=1).words
            ('river',)
        """
        _check_names("map", settings, [*FindOptions.__struct_fields__, *MapOptions.__struct_fields__])
        given: dict[str, Any] = {**settings, "standardise": self.standardiser(settings.get("standardise"))}
        given["layers"] = word_layers(self, given.get("layers"))
        look = FindOptions(**{name: given[name] for name in FindOptions.__struct_fields__ if name in given})
        draw = MapOptions(**{name: given[name] for name in MapOptions.__struct_fields__ if name in given})
        places = [corpus] if isinstance(corpus, LanguageSource) else corpus
        documents = read_languages(places, options=(reading or ReadOptions()).named(text), skipped=skipped)
        instances = find_instances(documents, checked_texts(words, "words").texts, look)
        return map_instances(self.encoder, self.tokenizer, instances, draw)

    def senses(
        self, directory: str | Path, *, wordnet: str | Path | None = None, options: SenseOptions | None = None
    ) -> SenseTagger:
        """A tagger of word senses, with the sense vectors that `larvatus senses build` made with this model.

        `model.senses("runs/senses", wordnet="wordnet/").tag("They sat on the bank of the river.")`

        Args:
            directory: Output of `larvatus senses build`.
            wordnet: Folder of WordNet's files; by default Debian's.
            options: Options of the tagger: `backoff`, `standardise`, `discourse`, `prior`.

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


def _instances(query: Any, word: str | None) -> tuple[list[WordInstance], bool]:
    """The word that each query marks, and whether a single query was given."""
    if isinstance(query, WordInstance):
        return [query], True
    if isinstance(query, list | tuple) and any(isinstance(each, WordInstance) for each in query):
        several = enumerate(query)
        texts = [each if isinstance(each, WordInstance) else checked_text(each, f"query[{at}]") for at, each in several]
        return [each if isinstance(each, WordInstance) else word_instance(each, word=word) for each in texts], False
    listed, single = checked_texts(query, "query")
    return [word_instance(text, word=word) for text in listed], single


def _check_names(method: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise UsageError(f"{method} has no setting {name!r}{did_you_mean(name, known)}")
