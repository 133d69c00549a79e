"""The base class of operations: a request body, the model it runs on, its cost, and how it runs its items.

    class Fill(Operation[FillBody]):
        name, title, Body = "fill", "Fill the blanks of texts.", FillBody
        def lacks(self, model): …                       # None, or what the model lacks
        def run(self, subject, items, options): …       # a dict for each item

The body without its texts is the options of the request. Requests to one model with equal options can share a call of
`run` (`together`), so that the overhead of a call is paid once for all of them.

`estimate` gives the cost of an item before it is queued, from the number of tokens of its texts: masked copies, beams
and overlapping windows count each time they are read, layers and vectors as the numbers in the response. A text has at
most one token per byte: a request that is cheap by its bytes is not tokenised for this.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct

from larvatus.core.errors import did_you_mean
from larvatus.core.settings import Settings
from larvatus.inference.model import Model
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.interfaces.serve.responses import BadRequest, CannotDo, OverLimit, WrongBody
from larvatus.interfaces.serve.served_index import ServedIndex
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import int8_weights


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model as the server offers it: its name, its operations, and what was loaded with it."""

    name: str
    model: Model
    can: tuple[str, ...]
    """Names of the operations that the model supports."""
    standardisers: Mapping[str, Standardiser]
    """Standardisers saved with the model, by name."""
    senses: SenseTagger | None = None
    """WordNet senses, if the server was started with sense vectors of this model."""
    indexes: Mapping[str, ServedIndex] = field(default_factory=dict)
    """Indexes of this model's vectors, by name."""
    reranker: ServedModel | None = None
    """Another model, which a request names to order what its indexes give."""

    def with_indexes(self, indexes: Mapping[str, ServedIndex]) -> ServedModel:
        """The same model with other indexes; if there is one, it can search."""
        can = tuple(name for name in self.can if name != SEARCH)
        return replace(self, indexes=indexes, can=(*can, SEARCH) if indexes else can)

    @property
    def labels(self) -> list[str] | None:
        """Named labels of the head; None if it has none."""
        for config in self.model.bundle.objectives:
            if isinstance(config, HeadConfig) and config.names_labels:
                return list(config.labels)
        return None

    def describe(self) -> dict[str, Any]:
        """The entry of /v1/models."""
        model, path = self.model, Path(self.model.bundle.path)
        described: dict[str, Any] = {
            "name": self.name,
            "path_name": path.name,
            "can": list(self.can),
            "layers": model.encoder.depth,
            "word_layers": model.bundle.word_layers,
            "heads": getattr(model.bundle.model, "heads", None),
            "width": model.encoder.width,
            "reach": model.encoder.reach,
            "parameters": sum(p.numel() for p in model.network.parameters()) + int8_weights(model.network),
            "standardisers": sorted(self.standardisers),
            "mask": model.tokenizer.special.mask if "fill" in self.can else None,
            "packaged": is_packaged(path),
            "card": (path / "README.md").is_file(),
            "indexes": [index.describe() for index in self.indexes.values()],
        }
        return described if self.labels is None else {**described, "labels": self.labels}


def is_packaged(path: Path) -> bool:
    """Whether a directory is the English model that comes with Larvatus."""
    packaged = packaged_model()
    return packaged is not None and path.resolve() == packaged.resolve()


SEARCH = "search"
"""The operation of models that have an index."""
SPECIAL = 3
"""Most special tokens of a window."""


@dataclass(frozen=True)
class RequestCost:
    tokens: int
    """Tokens computed, masked copies and beams included."""
    numbers: int = 0
    """Numbers in the response."""

    def __add__(self, other: RequestCost) -> RequestCost:
        return RequestCost(self.tokens + other.tokens, self.numbers + other.numbers)


@dataclass(frozen=True)
class RequestLimits:
    tokens: int
    numbers: int
    timeout: float = 0.0
    """Seconds of a request, if `tokens` is what can be computed in that time; else 0."""

    def allow(self, cost: RequestCost) -> bool:
        return cost.tokens <= self.tokens and cost.numbers <= self.numbers


def windowed(tokens: int, *, reach: int, overlap: int | None = None, shared: int = 0) -> int:
    """Tokens computed for a text that is read in overlapping windows, each with `shared` other tokens.

    >>> windowed(100, reach=512), windowed(1_000, reach=503, overlap=0), windowed(1_000, reach=503, overlap=400)
    (100, 1000, 3000)
    """
    capacity = max(1, reach - SPECIAL)
    if tokens + shared <= capacity:
        return tokens + shared
    size = max(1, capacity - shared)
    step = max(1, size - (size // 4 if overlap is None else overlap))
    windows = 1 + -(-max(0, tokens - size) // step)
    return windows * min(capacity, size + shared)


Item = Any
"""A text, words, a pair, or whatever the operation takes."""
DEEPEST = 32
"""Deepest nesting of lists and objects in a body."""
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


class Body(Settings):
    """Fields of every body."""

    model: str | None = None
    """Name of a model, from /v1/models; by default the first that supports the operation."""


class TextsBody(Body):
    texts: str | tuple[str, ...]
    """One text, or a list of texts."""


ABody = TypeVar("ABody", bound=Body)


class Operation(ABC, Generic[ABody]):
    """An operation has no state: there is one object of each."""

    name: ClassVar[str]
    """Last part of the route: /v1/NAME."""
    title: ClassVar[str]
    """Summary in one line."""
    Body: ClassVar[type[Body]]
    together: ClassVar[bool] = True
    """Whether one call runs several items; otherwise each item runs by itself, and only forward passes are shared."""
    whole: ClassVar[bool] = False
    """Whether one failed item fails the request."""
    texts_field: ClassVar[str] = "texts"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Example bodies, by name."""
    answer_example: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def lacks(self, model: Model) -> str | None:
        """What the model lacks for this operation; None if it supports it."""

    @abstractmethod
    def run(self, subject: ServedModel, items: Sequence[Item], options: ABody) -> Sequence[dict[str, Any]]:
        """A dict for each item; items are never empty. If it raises, each half of the items is run by itself."""

    def items(self, body: ABody) -> list[Item]:
        """Items of a body. Empty items fail one by one; a body with no other items is refused."""
        given = getattr(body, self.texts_field)
        items = [given] if isinstance(given, str) else list(given)
        if not items or all(is_empty(item) for item in items):
            raise BadRequest(f"there is nothing in {self.texts_field}; give a text, or a list of them")
        return items

    def options(self, body: ABody) -> ABody:
        """Options of a body; requests with equal options can share a call."""
        return msgspec.structs.replace(body, model=None, **{self.texts_field: ()})

    def check(self, body: ABody, settings: ServeSettings) -> None:
        """Refuse options that are over a limit."""
        top = getattr(body, "top", None)
        if top is not None and top > settings.max_top:
            raise OverLimit(f"top is {top:,}, and this server gives {settings.max_top:,} at most (--max-top)")

    def estimate(self, model: Model, item: Item, options: ABody, lengths: Sequence[int]) -> RequestCost:
        """Cost of an item whose texts (`texts_of`) have these numbers of tokens."""
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach))

    def model_name(self, body: ABody, models: Mapping[str, ServedModel]) -> str | None:
        """Name of the model that answers a body; None for the first that supports the operation."""
        return body.model

    def prepared(
        self, subject: ServedModel, body: ABody, choose: Callable[[str, str | None], ServedModel]
    ) -> ServedModel:
        """The model with another that the body names; `choose` gives the model of a name that supports an operation."""
        return subject

    def cost(self, subject: ServedModel, item: Item, options: ABody, lengths: Sequence[int]) -> RequestCost:
        """`estimate` of the model; operations that also depend on what the server loaded with it override this."""
        return self.estimate(subject.model, item, options, lengths)

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The response to a request."""
        return {"model": name, "results": list(results)}

    def count(self, item: Item) -> int:
        """Number of texts of an item, for --max-items."""
        return 1

    def size(self, item: Item) -> int:
        """Bytes of an item: small items are scheduled first."""
        return sum(byte_lengths(item))


def texts_of(item: Item) -> list[str]:
    """All texts within an item."""
    if isinstance(item, str):
        return [item]
    if isinstance(item, Mapping):
        item = item.values()
    elif isinstance(item, Struct):
        item = msgspec.structs.astuple(item)
    return [text for part in item for text in texts_of(part)] if isinstance(item, Sequence | type({}.values())) else []


def standardiser(subject: ServedModel, name: str | None) -> Standardiser | None:
    """A standardiser saved with the model and loaded when the server started: no request opens a file."""
    if name is not None and name not in subject.standardisers:
        raise CannotDo(
            f"{subject.name} has no standardiser {name!r}{did_you_mean(name, subject.standardisers)}; "
            "fit one with larvatus isotropy fit, and restart the server"
        )
    return None if name is None else subject.standardisers[name]


def byte_lengths(item: Item) -> list[int]:
    """Bytes of each text: an upper bound on its tokens."""
    return [len(text.encode("utf-8", "surrogatepass")) for text in texts_of(item)]


def token_lengths(model: Model, item: Item) -> list[int]:
    """Number of tokens of each text."""
    return [len(ids) for ids in model.tokenizer.encode_fast(texts_of(item))]


def is_empty(item: Item) -> bool:
    return not any(text.strip() for text in texts_of(item))


def read_body(raw: bytes, kind: type[ABody]) -> ABody:
    """Decode a body. A body that is not JSON is 400; JSON with wrong fields or types is 422.

    A body with a single `text` in place of `texts` is read as that text.
    """
    if raw.count(b"[") + raw.count(b"{") > DEEPEST:
        _refuse_deep(raw)
    try:
        body: ABody = _decode(raw, _decoder(kind))
    except msgspec.ValidationError as fault:
        if takes_text(kind) and (renamed := _with_texts(raw)) is not None:
            return read_body(renamed, kind)
        raise WrongBody(f"{_explain(str(fault), kind)}; GET /openapi.json lists the fields of a body") from None
    return body


@cache
def takes_text(kind: type[Struct]) -> bool:
    """Whether a body may have one `text` in place of its `texts`, which may be one text or several."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    texts = fields.get("texts")
    return "text" not in fields and isinstance(texts, UnionType) and str in get_args(texts)


def _with_texts(raw: bytes) -> bytes | None:
    """The body with its `text` as `texts`; None if it has no text that is a string."""
    try:
        fields = _decode(raw, msgspec.json.Decoder())
    except msgspec.ValidationError:  # a number without end, which the struct would refuse too
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        return None
    if "texts" in fields:
        raise WrongBody("the body has both text and texts; give one of them")
    return msgspec.json.encode({("texts" if name == "text" else name): value for name, value in fields.items()})


def _decode(raw: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode JSON; a body that is none is 400."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        reason = "not UTF-8" if isinstance(fault, UnicodeDecodeError) else str(fault)
        raise BadRequest(f"the body is not JSON: {reason}") from None


_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*?)`)?$", re.DOTALL)


def _explain(message: str, kind: type[Struct]) -> str:
    """A decoding error; of an unknown field, with the field that may be meant.

    >>> _explain("Object contains unknown field `text`", TextsBody)
    'the body has no field text; did you mean texts?'
    """
    match = _UNKNOWN.match(message)
    if match is None:
        return message
    name, path = match.groups()
    owner = _nested_struct(kind, path) if path else kind
    place = f"{path.partition('[')[0]} has" if path else "the body has"
    return f"{place} no field {name}{did_you_mean(name, owner.__struct_fields__ if owner is not None else ())}"


def _nested_struct(kind: type[Struct], path: str) -> type[Struct] | None:
    """The struct of the objects in a field such as `questions[...]`."""
    waiting = [each.type for each in msgspec.structs.fields(kind) if each.encode_name == path.partition("[")[0]]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, Struct):
            return annotation
        waiting += get_args(annotation)
    return None


@cache
def _decoder(kind: type[ABody]) -> msgspec.json.Decoder[ABody]:
    return msgspec.json.Decoder(kind)


def _refuse_deep(raw: bytes) -> None:
    depth = 0
    for match in _BRACKETS.finditer(raw):
        token = match[0][:1]
        depth += 1 if token in b"[{" else -1 if token in b"]}" else 0
        if depth > DEEPEST:
            raise BadRequest(f"the lists and objects of the body are nested more than {DEEPEST} deep; flatten it")
