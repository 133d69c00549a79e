"""Results of filling blanks: frozen records that print and convert to dicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from larvatus.core import notebook
from larvatus.core.tabular import Tabular


@dataclass(frozen=True)
class Fill:
    """One candidate for one blank."""

    token: str
    probability: float
    id: int
    text: str
    """The whole text with the blank filled (other blanks stay blank)."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.probability:8.4f}  {self.token:<16}  {self.text}"


@dataclass(frozen=True)
class JointFill:
    """One way to fill all blanks of a text together."""

    tokens: tuple[str, ...]
    probability: float
    ids: tuple[int, ...]
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": list(self.tokens), "ids": list(self.ids)}

    def __str__(self) -> str:
        return f"{self.probability:8.4f}  {' … '.join(self.tokens):<16}  {self.text}"


@dataclass(frozen=True)
class Fills(Sequence[Fill | JointFill], Tabular):
    """The best fills of a text, most probable first: `Fill`s of a single blank, `JointFill`s of several."""

    text: str
    best: tuple[Fill | JointFill, ...]
    marginals: tuple[tuple[Fill, ...], ...]
    """For each blank its own candidates, the other blanks left open."""
    read: int
    """Tokens of the text that the model read …"""
    total: int
    """… of all its tokens: a long text is read in a window around its blanks."""

    @overload
    def __getitem__(self, index: int) -> Fill | JointFill: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fill | JointFill, ...]: ...
    def __getitem__(self, index: int | slice) -> Fill | JointFill | tuple[Fill | JointFill, ...]:
        return self.best[index]

    def __len__(self) -> int:
        return len(self.best)

    def __iter__(self) -> Iterator[Fill | JointFill]:
        return iter(self.best)

    @property
    def partial(self) -> str:
        """How much of the text was read, if not all of it; else empty."""
        return "" if self.read == self.total else f"read {self.read:,} of {self.total:,} tokens, around the blanks"

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "fills": [fill.to_dict() for fill in self.best],
            "marginals": [[fill.to_dict() for fill in blank] for blank in self.marginals],
            "read": self.read,
            "total": self.total,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each candidate, most likely first: joint fills, or those of each blank if there are none."""
        if self.best:
            return [{"text": self.text, "rank": rank, **_row(fill)} for rank, fill in enumerate(self.best, start=1)]
        return [
            {"text": self.text, "blank": blank, "rank": rank, **_row(fill)}
            for blank, fills in enumerate(self.marginals, start=1)
            for rank, fill in enumerate(fills, start=1)
        ]

    def _repr_html_(self) -> str:
        names = [each.token if isinstance(each, Fill) else " … ".join(each.tokens) for each in self]
        rows = zip(names, (each.probability for each in self), strict=True)
        return notebook.bars(rows, title=self.text, note=self.partial)

    def __str__(self) -> str:
        note = [f"({self.partial})"] if self.partial else []
        return "\n".join([self.text, *note, *(str(fill) for fill in self.best)])


def _row(fill: Fill | JointFill) -> dict[str, Any]:
    """Columns of a candidate: `token`, or `token_1`, `token_2`, … of several blanks."""
    if isinstance(fill, Fill):
        tokens = {"token": fill.token}
    else:
        tokens = {f"token_{blank}": token for blank, token in enumerate(fill.tokens, start=1)}
    return {**tokens, "probability": fill.probability, "filled": fill.text}
