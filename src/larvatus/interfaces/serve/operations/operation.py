"""What an operation is: a body that may be posted, what it needs of a model, and what it does with the items of it.

    class Fill(Operation[FillBody]):
        name, title, Body = "fill", "Fill the blanks of texts.", FillBody
        def lacks(self, model): …                       # None, or what the model would need
        def run(self, subject, items, options): …       # a dict for each item

A body without its texts is the options of the request: requests to the same model whose options are equal may be put
together in one call (`together`), so that what Python does for each call is done once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from larvatus.core.errors import did_you_mean
from larvatus.core.settings import Settings
from larvatus.inference.model import Model
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.standardise.standardise import Standardiser
from larvatus.interfaces.serve.cost import RequestCost, windowed
from larvatus.interfaces.serve.refusals import BadRequest, CannotDo, OverLimit
from larvatus.interfaces.serve.settings import ServeSettings

Item = Any
"""A text, words, a pair, or whatever the operation takes."""


class Subject(Protocol):
    """A model, as it is served."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> Model: ...

    @property
    def senses(self) -> SenseTagger | None: ...

    @property
    def standardisers(self) -> Mapping[str, Standardiser]: ...


class Body(Settings):
    """What every body may say."""

    model: str | None = None
    """Name of a model, as /v1/models gives it; by default the first that can do this."""


class TextsBody(Body):
    texts: str | tuple[str, ...]
    """A text, or several."""


ABody = TypeVar("ABody", bound=Body)


class Operation(ABC, Generic[ABody]):
    """It has no state: there is one object of each kind."""

    name: ClassVar[str]
    """Last part of its address: /v1/NAME."""
    title: ClassVar[str]
    """What it does, one line."""
    Body: ClassVar[type[Body]]
    together: ClassVar[bool] = True
    """Whether items are put together in one call; else each is run by itself, and the passes put them together."""
    whole: ClassVar[bool] = False
    """Whether an item that fails fails the request."""
    texts_field: ClassVar[str] = "texts"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Bodies to try, by name."""
    answer_example: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def lacks(self, model: Model) -> str | None:
        """What a model would need for this; None where it has all."""

    @abstractmethod
    def run(self, subject: Subject, items: Sequence[Item], options: ABody) -> Sequence[dict[str, Any]]:
        """A dict for each item, none of which is empty. It may raise: items are then run by halves."""

    def items(self, body: ABody) -> list[Item]:
        """What is worked on; empty ones are refused one by one, nothing at all as a whole."""
        given = getattr(body, self.texts_field)
        items = [given] if isinstance(given, str) else list(given)
        if not items or all(is_empty(item) for item in items):
            raise BadRequest(f"there is nothing in {self.texts_field}; give a text, or a list of them")
        return items

    def options(self, body: ABody) -> ABody:
        """The same for requests that may be put together."""
        return msgspec.structs.replace(body, model=None, **{self.texts_field: ()})

    def check(self, body: ABody, settings: ServeSettings) -> None:
        """Refuse what is over a limit, before anything is read."""
        top = getattr(body, "top", None)
        if top is not None and top > settings.max_top:
            raise OverLimit(f"top is {top:,}, and this server gives {settings.max_top:,} at most (--max-top)")

    def estimate(self, model: Model, item: Item, options: ABody, lengths: Sequence[int]) -> RequestCost:
        """What an item costs whose texts (`texts_of`) have so many tokens."""
        return RequestCost(windowed(sum(lengths), reach=model.encoder.reach))

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The answer to a request."""
        return {"model": name, "results": list(results)}

    def count(self, item: Item) -> int:
        """Texts of an item, for the limit of them."""
        return 1

    def size(self, item: Item) -> int:
        """Its bytes, by which small items come first."""
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


def standardiser(subject: Subject, name: str | None) -> Standardiser | None:
    """One that was saved with the model, and loaded when the server began: no request opens a file."""
    if name is not None and name not in subject.standardisers:
        raise CannotDo(
            f"{subject.name} has no standardiser {name!r}{did_you_mean(name, subject.standardisers)}; "
            "fit one with larvatus isotropy fit, and start the server anew"
        )
    return None if name is None else subject.standardisers[name]


def byte_lengths(item: Item) -> list[int]:
    """Bytes of each text: it has no more tokens."""
    return [len(text.encode("utf-8", "surrogatepass")) for text in texts_of(item)]


def token_lengths(model: Model, item: Item) -> list[int]:
    """Tokens of each text."""
    return [len(ids) for ids in model.tokenizer.encode_fast(texts_of(item))]


def is_empty(item: Item) -> bool:
    return not any(text.strip() for text in texts_of(item))
