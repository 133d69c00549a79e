"""Search by meaning: the instances of a word that are nearest to a marked one.

    source = open_place(["texts/"])                       # text, an index directory, or a file of `embed --unit word`
    neighbours = search(lv.load("runs/mine"), query, source, SearchOptions(top=10))

Layers, pooling and standardisation come from the index or the file; the model must be the one it was computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.ranges import Count
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.inference.search.concordance import Concordance, DocumentFilter, WordFilter, instances_in_text, nearest
from larvatus.inference.search.index import NAME, InstanceIndex
from larvatus.inference.search.vector_file import VectorFile
from larvatus.inference.vectors.layers import Layers, layers_name
from larvatus.inference.vectors.options import EmbedOptions, Pool
from larvatus.inference.vectors.own_pooling import word_layers
from larvatus.inference.vectors.passages import PassageOptions, passages
from larvatus.inference.vectors.similarity import WordInstance, instance_vectors
from larvatus.inference.vectors.standardise import Standardiser, standardiser_for
from larvatus.models.loaded import LoadedModel

SearchSource = InstanceIndex | VectorFile | list[str]
"""What to search: an index, a file of vectors, or paths of text."""


class SearchOptions(Settings):
    top: Count = 10
    word: str | None = None
    """Word whose instances are searched; None for the word that the query marks."""
    any_word: bool = False
    """Search the instances of all words."""
    layers: Layers | None = None
    """None for the layers of the index, or the last layer for text."""
    pool: Pool | None = None
    standardise: Standardiser | None = None
    passages: PassageOptions = PassageOptions()

    def with_text(self, column: str | None) -> SearchOptions:
        """The same options with another text column; None leaves them unchanged."""
        passages = msgspec.structs.replace(self.passages, reading=self.passages.reading.named(column))
        return msgspec.structs.replace(self, passages=passages)


def open_source(paths: Sequence[str]) -> SearchSource:
    if len(paths) == 1:
        only = Path(paths[0])
        if is_there(only / NAME):
            return InstanceIndex.open(only)
        file = VectorFile.find(only)
        if file is not None:
            return file
    return list(paths)


def search(
    model: LoadedModel,
    query: WordInstance,
    source: SearchSource,
    options: SearchOptions,
    *,
    progress: Callable[[int], None] = lambda _: None,
    skipped: Skipped | None = None,
) -> Concordance:
    """The nearest instances."""
    encoder, tokenizer = model.encoder, model.tokenizer
    embed = embed_options(source, options, model)
    word = None if options.any_word else options.word or query.word
    vector = instance_vectors(encoder, tokenizer, [query], embed)[0]
    chosen = DocumentFilter(WordFilter.of(None if word is None else [word]))
    if isinstance(source, InstanceIndex):
        blocks = source.blocks(word)
    elif isinstance(source, VectorFile):
        blocks = source.blocks(chosen.wanted)
    else:
        pieces = passages(source, options.passages, Skipped() if skipped is None else skipped, chosen)
        blocks = instances_in_text(encoder, tokenizer, pieces, chosen.wanted, embed, progress=progress)
    neighbours = nearest(vector, blocks, options.top)
    if not neighbours.searched:
        if isinstance(source, list) and not chosen.read:
            raise DataError(f"no text in {', '.join(source[:3])}; name files with text")
        where = source.path if not isinstance(source, list) else ", ".join(source[:3])
        raise DataError(f"{word!r} does not occur in {where}; check the spelling, or name more text")
    return replace(neighbours, layers=layers_name(embed.layers))


def embed_options(source: SearchSource, options: SearchOptions, model: LoadedModel) -> EmbedOptions:
    """Options of the query's vector, so that it is comparable with the searched ones."""
    if isinstance(source, list):
        return EmbedOptions(
            unit="span",
            layers=word_layers(model, options.layers),
            pool=options.pool or "mean",
            standardise=options.standardise,
        )
    if isinstance(source, InstanceIndex):
        model_of_source, layers, pool = source.described.model, source.described.layers, source.described.pool
        standardiser = source.standardiser
    else:
        model_of_source, layers, pool = source.settings["model"], source.settings["layers"], source.settings["pool"]
        standardiser = _standardiser_of(source, model)
    if model_of_source != model.fingerprint:
        raise ArtefactError(
            f"{source.path} was computed with another model; name that model with --model, or build it again"
        )
    if isinstance(layers, list):
        layers = [float(weight) for weight in layers]
    given, stored = options.standardise, standardiser
    for name, wanted, has in (
        ("layers", options.layers, layers),
        ("pool", options.pool, pool),
        ("standardise", given and given.checksum, (stored and stored.checksum) if given else None),
    ):
        if wanted is not None and str(wanted) != str(has):
            raise UsageError(f"{source.path} was computed with another --{name}; leave it out, or build it again")
    return EmbedOptions(unit="span", layers=layers, pool=pool, standardise=standardiser)


def _standardiser_of(file: VectorFile, model: LoadedModel) -> Standardiser | None:
    used = file.settings.get("standardise")
    if used is None:
        return None
    standardiser = standardiser_for(model, used["name"])
    if standardiser is None or standardiser.checksum != used["sha256"]:
        raise ArtefactError(f"the standardiser {used['name']} is not that of {file.path}; embed the corpus again")
    return standardiser
