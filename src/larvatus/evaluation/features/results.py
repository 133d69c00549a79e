"""Sparse features of a layer with their contexts: a directory, a table and a page.

features = SparseFeatures.load("runs/features")
features.activations(model, "The key to the cabinets is here.")[0].number

features.safetensors     the autoencoder of the trained encoder, and that of the random one
features.json            origin, comparison, and every feature with its strongest contexts
larvatus.json            checksums of both
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import torch

from larvatus.core import files
from larvatus.core.drawing import Element, as_html, element, legible
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.settings import Settings
from larvatus.core.tables import Column, ReportPart, Table, Tabular, render_text
from larvatus.evaluation.features.autoencoder import FeatureSettings, SparseAutoencoder
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.bundle.manifest import read_manifest, verify, write_manifest
from larvatus.models.bundle.weights import read_tensors, write_tensors
from larvatus.models.loaded import LoadedModel

NAMES = ("trained", "random")
Sort = Literal["rate", "consistency", "number"]
FILES = ("features.safetensors", "features.json")
_TENSORS = ("centre", "scale", "encoder", "decoder", "bias")


class Context(Settings):
    """A word that activates a feature, with its surroundings."""

    text: str
    start: int
    """Characters of the word in `text`."""
    end: int
    value: float
    """Activation."""
    source: str
    """File."""
    line: int
    document: int
    """Number of the document, from 0."""
    place: int
    """First character of the word in the document."""

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


class Feature(Settings):
    number: int
    """From 1."""
    rate: float
    """Share of held-out tokens on which it fires."""
    one_form: bool
    """Whether its contexts, two or more, all mark the same word form."""
    consistency: float | None
    """Mean cosine between the words of its contexts; None with fewer than two."""
    contexts: tuple[Context, ...]
    """Strongest first, one a passage."""


class FeatureDictionary(Settings):
    """How the features of one encoder do on held-out text."""

    size: int
    explained: float
    """Share of the variance explained."""
    low: float
    high: float
    """95% interval over passages."""
    dead: int
    """Features that fire on no held-out token."""
    compared: int
    """Features with two contexts or more: those that the following describe."""
    one_form: float | None
    """Share of features whose contexts all mark one word form."""
    consistency: float | None
    """Mean consistency of features,"""
    consistency_varied: float | None
    """of those with several word forms,"""
    chance: float | None
    """and of words at random."""


class FeatureOrigin(Settings):
    """Where features come from."""

    model: str
    """Fingerprint."""
    name: str
    layer: int
    corpus: str
    tokens: int
    """Tokens that were trained on."""
    held_out: int
    passages: int
    """Held-out tokens and passages."""
    settings: FeatureSettings
    long: int = 0
    """Passages, trained on or held out, that are longer than the model's window."""


class _Contents(Settings):
    origin: FeatureOrigin
    dictionaries: dict[str, FeatureDictionary]
    features: dict[str, tuple[Feature, ...]]


class ActiveFeature(NamedTuple):
    """A feature that fires on a token of a text."""

    token: str
    start: int
    number: int
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class SparseFeatures(Tabular):
    """Sparse features of one layer, of a trained encoder and of one with random weights.

    Example:
        >>> features = lv.train_features(model, texts, layer=1, size=32, k=4, tokens=1000, batch=64)
        >>> len(features.features["random"])
        32
    """

    origin: FeatureOrigin
    dictionaries: Mapping[str, FeatureDictionary]
    """Dictionaries of the trained encoder and of the one with random weights."""
    features: Mapping[str, tuple[Feature, ...]]
    autoencoders: Mapping[str, SparseAutoencoder]

    def __repr__(self) -> str:
        return f"<SparseFeatures: {len(self.features['trained']):,} of layer {self.origin.layer}>"

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = msgspec.to_builtins(_Contents(**{name: getattr(self, name) for name in CONTENTS}))
        return record

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each feature of the trained encoder, with its strongest word and context."""
        return [
            {
                **{name: getattr(each, name) for name in ("number", "rate", "one_form", "consistency")},
                "word": each.contexts[0].word if each.contexts else None,
                "context": each.contexts[0].text if each.contexts else None,
            }
            for each in self.features["trained"]
        ]

    def activations(self, model: LoadedModel, text: str, *, top: int = 3) -> list[ActiveFeature]:
        """The strongest features of each token of a text.

        Args:
            model: The model whose features these are.
            text: A text.
            top: Number of features of a token.

        Example:
            >>> features = lv.train_features(model, texts, layer=1, size=32, k=4, tokens=1000, batch=64)
            >>> features.activations(model, "the river")[0].token
            'the'
        """
        self.check_model(model.fingerprint, str(model.bundle.path))
        options = EmbedOptions(unit="token", layers=self.origin.layer)
        vectors = next(embed_texts(model.network.encoder, model.tokenizer, [text], options))
        values_NK, features_NK = self.autoencoders["trained"].encode(torch.from_numpy(np.nan_to_num(vectors.vectors)))
        rows = zip(vectors.units, vectors.spans.tolist(), values_NK.tolist(), features_NK.tolist(), strict=True)
        return [
            ActiveFeature(token, span[0], number + 1, value)
            for token, span, values, numbers in rows
            for value, number in list(zip(values, numbers, strict=True))[:top]
            if value > 0
        ]

    def check_model(self, fingerprint: str, name: str) -> None:
        """Refuse another model than the one whose features these are.

        Args:
            fingerprint: The model's fingerprint.
            name: Its name in the error.
        """
        if fingerprint != self.origin.model:
            raise ArtefactError(
                f"these are features of {self.origin.name}, and {name} has other weights; use that model, or train "
                "features of this one: larvatus features train"
            )

    def chosen(self, *, of: str, sort: Sort, word: str | None = None, number: int | None = None) -> list[Feature]:
        """Features that fire, sorted.

        Args:
            of: `trained` or `random`.
            sort: By `rate`, `consistency` or `number`.
            word: Only those whose strongest contexts mark this word.
            number: Only the feature of this number.
        """
        listed = self.features[of]
        if number is not None:
            if not 1 <= number <= len(listed):
                raise UsageError(f"there is no feature {number}: they are numbered 1 to {len(listed):,}")
            return [listed[number - 1]]
        live = [each for each in listed if each.contexts]
        if word is not None:
            live = [each for each in live if any(c.word.casefold() == word.casefold() for c in each.contexts)]
            if not live:
                raise UsageError(f"no strongest context of a feature marks {word!r}; try another word")
        keys = {
            "rate": lambda each: -each.rate,
            "consistency": lambda each: -(each.consistency if each.consistency is not None else -2.0),
            "number": lambda each: each.number,
        }
        return sorted(live, key=keys[sort])

    def __str__(self) -> str:
        return render_text([self.comparison(), *feature_parts(self.chosen(of="trained", sort="consistency")[:10])])

    def comparison(self) -> Table:
        """The trained encoder next to the random one."""
        o = self.origin
        title = (
            f"{o.name}, layer {o.layer}: {o.settings.k} of {self.dictionaries['trained'].size:,} features active, "
            f"trained on {o.tokens:,} tokens, measured on {o.held_out:,} of {o.passages:,} other passages (seed "
            f"{o.settings.seed})"
        )
        both = [self.dictionaries[name] for name in NAMES]
        rows = [
            ["explained variance", *(f"{d.explained:.3f} ({d.low:.3f} to {d.high:.3f})" for d in both)],
            ["dead features", *(f"{d.dead:,}" for d in both)],
            ["features with two contexts", *(f"{d.compared:,}" for d in both)],
            ["contexts share one word form", *(_share(d.one_form) for d in both)],
            ["consistency of contexts", *(_number(d.consistency) for d in both)],
            ["  with several word forms", *(_number(d.consistency_varied) for d in both)],
            ["  of words at random", *(_number(d.chance) for d in both)],
        ]
        long = f"{o.long:,} passages are longer than the model's window and are read in several"
        return Table(("", "trained", "random weights"), rows, title=title, notes=(long,) if o.long else ())

    def draw(self, listed: Sequence[Feature], of: str) -> Element:
        """A picture: the comparison, and features with their contexts.

        Args:
            listed: The features.
            of: `trained` or `random`.
        """
        table = self.comparison()
        head = element("tr", {}, *(element("th", {"scope": "col"}, column.name) for column in table.heads))
        body = [element("tr", {}, *(element("td", {}, cell.text) for cell in row)) for row in table.cells]
        parts = [element("p", {}, table.title), element("table", {}, head, *body)]
        for each in listed:
            about = f"Feature {each.number} ({of}): fires on {each.rate:.2%} of tokens, consistency "
            parts.append(element("h2", {}, about + _number(each.consistency)))
            parts += [
                element(
                    "p",
                    {"class": "lv-text", "title": f"{c.source}:{c.line}, character {c.place} of document {c.document}"},
                    c.text[: c.start],
                    element("mark", {}, c.word),
                    c.text[c.end :],
                    element("sub", {}, f"{c.value:.2f}"),
                )
                for c in each.contexts
            ]
        return element("div", {"class": "lv"}, *parts)

    def _repr_html_(self) -> str:
        return as_html(self.draw(self.chosen(of="trained", sort="consistency")[:10], "trained"))

    def save(self, directory: Path) -> None:
        """Write the features, complete or not at all.

        Args:
            directory: A new directory.
        """
        check_new(directory)
        tensors = {
            f"{name}.{part}": getattr(made, part) for name, made in self.autoencoders.items() for part in _TENSORS
        }
        with files.new_directory(directory) as aside:
            write_tensors(aside / FILES[0], tensors)
            files.write_json(aside / FILES[1], self.to_dict())
            write_manifest(aside, FILES, recipe=None, lineage={"kind": "features"})

    @classmethod
    def load(cls, directory: str | Path) -> SparseFeatures:
        """Read the features of a directory; a changed byte is refused.

        Args:
            directory: Output of `larvatus features train`.
        """
        path = Path(directory)
        manifest = read_manifest(path)
        if manifest is None or manifest.lineage.get("kind") != "features":
            raise ArtefactError(f"{path} holds no sparse features; train some: larvatus features train --out {path}")
        verify(path, manifest, required=FILES)
        try:
            held = msgspec.convert(files.read_json(path / FILES[1]), _Contents)
        except msgspec.ValidationError as fault:
            raise ArtefactError(
                f"{path / FILES[1]} was written by another version of Larvatus: {fault}; train the features again"
            ) from fault
        tensors = read_tensors(path / FILES[0])
        wanted = {f"{name}.{part}" for name in NAMES for part in _TENSORS}
        if tensors.keys() != wanted or {*held.features} != {*NAMES} or {*held.dictionaries} != {*NAMES}:
            raise ArtefactError(f"{path / FILES[0]} does not fit {FILES[1]}; train the features again")
        autoencoders = {}
        for name in NAMES:
            centre, scale, encoder, decoder, bias = (tensors[f"{name}.{part}"] for part in _TENSORS)
            made = SparseAutoencoder(centre, scale, decoder, k=held.origin.settings.k)
            made.load_state_dict(
                {"centre": centre, "scale": scale, "encoder": encoder, "decoder": decoder, "bias": bias}
            )
            autoencoders[name] = made
        return cls(held.origin, held.dictionaries, held.features, autoencoders)


def check_new(directory: Path) -> None:
    """Refuse a directory that exists, before any work is done."""
    if os.path.lexists(directory):
        raise ArtefactError(f"{directory} is there already; remove it, or choose another --out")


CONTENTS = ("origin", "dictionaries", "features")


def feature_parts(listed: Sequence[Feature], contexts: int = 3) -> Iterator[ReportPart]:
    """A table of features, with a few contexts of each."""
    rows = []
    for each in listed:
        for number, context in enumerate(each.contexts[:contexts]):
            about = (str(each.number), f"{each.rate:.2%}", _number(each.consistency)) if number == 0 else ("", "", "")
            rows.append((*about, f"{context.value:.2f}", _line(context)))
    columns = ("feature", "rate", "consistency", "value", Column("context", right=False))
    yield Table(columns, rows, blank_before=True)


def _line(context: Context) -> str:
    """One line with the word between brackets."""
    before, after = context.text[: context.start][-40:], context.text[context.end :][:30]
    return " ".join(legible(f"{before}[{context.word}]{after}").split())


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
