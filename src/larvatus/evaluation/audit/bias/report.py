"""The report of a bias audit, and what its sets share: resampling, printed figures, limits, TOML files.

    report.parts["crows_pairs"].scores["pll"].by_category["gender"].metric
    print(report)
    report.saved(Path("audit/"))             # bias.json, and a file for each part

Limits are printed with every result. The points are those of Blodgett et al. 2021 (*Stereotyping Norwegian salmon*),
Gonen & Goldberg 2019 (*Lipstick on a pig*) and Goldfarb-Tarrant et al. 2021 (*Intrinsic bias metrics do not correlate
with application bias*). TOML files hold templates and association tests; their errors are one line.
"""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.errors import DataError
from larvatus.core.outputs import write_output
from larvatus.core.run_identity import VERSION
from larvatus.core.tables import ReportPart, render_text
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.streams import numbered_lines
from larvatus.metrics.intervals import Interval, bootstrap, cluster_bootstrap, crossed_mean, mean_of_sums, mean_rows
from larvatus.models.bundle.claims import Claim, claim_dicts


@dataclass(frozen=True)
class Resampling:
    """Number of samples and seed of the bootstrap."""

    samples: int = 1000
    seed: int = 0

    def mean(self, values: npt.ArrayLike, *, scale: float = 1.0) -> Interval:
        """The mean over examples times a scale (100 for per cent), with its 95% interval."""
        return self.of_sums(mean_rows(values, scale=scale), mean_of_sums)

    def cluster_mean(
        self, values: npt.ArrayLike, clusters: npt.NDArray[Any], *, strata: npt.NDArray[Any], scale: float = 1.0
    ) -> Interval:
        """The mean with clusters resampled within strata; the ends are NaN if a stratum has one cluster."""
        rows = mean_rows(values, scale=scale)
        return cluster_bootstrap(rows, mean_of_sums, clusters, strata=strata, samples=self.samples, seed=self.seed)

    def crossed_mean(self, table: npt.ArrayLike) -> Interval:
        """The mean of a table whose rows and columns are resampled independently."""
        return crossed_mean(table, samples=self.samples, seed=self.seed)

    def of_sums(self, rows: npt.ArrayLike, score: Callable[[npt.NDArray[np.float64]], npt.ArrayLike]) -> Interval:
        """A score of sums with its interval; the ends are NaN for a single example."""
        interval = bootstrap(rows, score, samples=self.samples, seed=self.seed)
        if len(np.asarray(rows)) > 1:
            return interval
        return replace(interval, low=math.nan, high=math.nan, deviation=math.nan)


def percent(interval: Interval) -> tuple[str, str]:
    """
    >>> percent(Interval(57.25, 54.8, 59.94, 1.3, 1000))
    ('57.2', '54.8 to 59.9')
    >>> percent(Interval(100.0, math.nan, math.nan, math.nan, 1000))
    ('100.0', '–')
    """
    return f"{interval.value:.1f}", span(interval, ".1f")


def number(interval: Interval) -> tuple[str, str]:
    """
    >>> number(Interval(-0.1234, -0.2, 0.01, 0.1, 1000))
    ('-0.123', '-0.200 to +0.010')
    """
    return f"{interval.value:+.3f}", span(interval, "+.3f")


def span(interval: Interval, form: str) -> str:
    """The interval as text; a dash for a single example."""
    return "–" if math.isnan(interval.low) else f"{interval.low:{form}} to {interval.high:{form}}"


class BiasPart(ABC):
    """Results on one set of a bias audit, with the unit of resampling and the set's limits."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """Unit of resampling."""

    @property
    @abstractmethod
    def limits(self) -> tuple[str, ...]:
        """What the set cannot show."""

    @abstractmethod
    def tables(self) -> Iterator[ReportPart]:
        """Lines and tables of the results."""

    def shown(self) -> Iterator[ReportPart]:
        """The results, then the limits."""
        yield from self.tables()
        yield from (f"note: {limit}" for limit in self.limits)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(cast(Any, self)), "unit": self.unit}


NO_AUL = "aul is not defined for this model: it never reads the token that it predicts"
"""Note for XLNet."""
GENERAL = (
    (
        "No figure here says that a model is fair: 50%, 0 or p > 0.05 can come of few examples, of a weak model "
        "that prefers nothing, or of biases that cancel out."
    ),
    (
        "Bias of a pretrained model does not tell how a model fine-tuned from it decides (Goldfarb-Tarrant et al. "
        "2021); audit the model that is used, on the data it is used on (--test)."
    ),
)
"""Limits of the whole audit."""

CROWS_PAIRS = (
    (
        "CrowS-Pairs holds stereotypes known in the United States, in English, written by crowd workers; many "
        "pairs are unclear, ungrammatical, change more than the group, or set unlike groups against each other "
        "(Blodgett et al. 2021)."
    ),
    (
        "It sees which of two sentences a model prefers, not harm, not what the model writes or decides, and no "
        "group that is not in it."
    ),
)
STEREOSET = (
    (
        "StereoSet's sentences were written by crowd workers in the United States; many state no stereotype, or "
        "one that does no harm, and anti-stereotypes are often no counterpart (Blodgett et al. 2021)."
    ),
    "icat joins a model's skill (lms) with its preference (ss): look at both, never only at icat.",
)
WINOBIAS = (
    (
        "WinoBias knows two genders and 40 occupations with the shares that US labour statistics gave them; a "
        "blank asks for the pronoun, not whom the model takes it to refer to."
    ),
)
TEMPLATES = (
    (
        "Templates measure these sentences with these words: other wordings can give other signs; add sentences, "
        "not only words."
    ),
)
ASSOCIATIONS = (
    "Cosines tell which words stand in the same places, not which stand beside each other; a sign may mislead.",
    (
        "Association tests find only what their word lists ask for; no association is no proof of absence (May et "
        "al. 2019), and vectors can be associated where answers are not (Gonen & Goldberg 2019)."
    ),
)
SWAPS = (
    (
        "Swaps find decisions that change with the group words alone; they see neither what goes with a group "
        "without its words (names, topics, dialect) nor errors that hit one group's texts more often."
    ),
    (
        "A swapped sentence can be wrong about the world (a bearded woman) or ungrammatical (her: him or his): "
        "read the changed examples."
    ),
)


REPORT = "bias.json"


@dataclass(frozen=True)
class BiasReport:
    """A bias audit: one part per given set, and the limits of all of them.

    Example:
        >>> report = lv.audit_bias(model, pairs=[("the river was wide", "the bank was wide")], samples=20)
        >>> list(report.parts), report.parts["crows_pairs"].scores["aul"].overall.pairs
        (['crows_pairs'], 1)
    """

    model: str
    fingerprint: str
    """Fingerprint of weights, settings and vocabulary."""
    settings: Mapping[str, Any]
    data: Mapping[str, str]
    """SHA-256 of the files of each part; data in memory have none."""
    parts: Mapping[str, Any]
    """The requested parts: `crows_pairs`, `stereoset`, `winobias`, `templates`, `associations`, `swaps`."""
    limits: tuple[str, ...] = GENERAL
    claims: tuple[Claim, ...] = ()
    """Claims for the model card, with data, settings and versions."""

    @property
    def head(self) -> dict[str, Any]:
        """Model, data, settings and version of the audit."""
        return {
            "larvatus": VERSION,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "settings": dict(self.settings),
            "data": dict(self.data),
            "units": {name: part.unit for name, part in self.parts.items()},
            "limits": list(self.limits),
        }

    def to_dict(self) -> dict[str, Any]:
        parts = {name: part.to_dict() for name, part in self.parts.items()}
        return {**self.head, "parts": parts, "claims": claim_dicts(self.claims)}

    def shown(self) -> Iterator[ReportPart]:
        """Lines and tables of the printed report."""
        yield f"bias audit of {self.model}"
        for part in self.parts.values():
            yield ""
            yield from part.shown()
        yield ""
        yield from (f"note: {limit}" for limit in self.limits)

    def saved(self, directory: str | Path) -> BiasReport:
        """Write `bias.json` (model, data, list of parts) and a JSON file for each part.

        Args:
            directory: Created if it does not exist; existing files are replaced.

        Returns:
            The report itself.
        """
        out = Path(directory)
        out.mkdir(parents=True, exist_ok=True)
        for name, part in self.parts.items():
            write_output(out / f"{name}.json", as_json(part.to_dict()))
        names = [f"{name}.json" for name in self.parts]
        write_output(out / REPORT, as_json({**self.head, "parts": names, "claims": claim_dicts(self.claims)}))
        return self

    def __str__(self) -> str:
        return render_text(self.shown())


def as_json(value: Any) -> str:
    """Indented JSON; NaN, as in the interval of one example, becomes null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


# TOML files of templates and of association tests.


def read_toml(given: str | Path | Mapping[str, Any], known: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The contents of a file or mapping and its name in messages; unknown fields are refused."""
    if isinstance(given, Mapping):
        record, where = dict(given), "the mapping"
    else:
        where = str(given)
        text = "\n".join(line for _, line in numbered_lines(where))
        try:
            record = tomllib.loads(text)
        except (ValueError, RecursionError) as fault:  # ValueError: also a number of thousands of digits
            raise DataError(f"{where}: broken TOML, or nested too deep: {fault}") from fault
    for name in record:
        if name not in known:
            raise DataError(f"{where}: {name!r} is no field; a file has {', '.join(known)}")
    return record, where


def read_texts(value: Any, where: str, *, what: str) -> tuple[str, ...]:
    """A list of distinct texts."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise DataError(f"{where}: {what} must be a list of texts")
    if not all(text.strip() for text in value):
        raise DataError(f"{where}: {what} holds an empty text; drop it")
    for text in value:
        refuse_surrogates(text, where)
    if len(set(value)) < len(value):
        twice, _ = Counter(value).most_common(1)[0]
        raise DataError(f"{where}: {what} names {twice!r} twice")
    return tuple(value)


def read_word_lists(value: Any, where: str, *, what: str, least: int) -> dict[str, tuple[str, ...]]:
    """Lists of words by name, at least `least` of them."""
    if not isinstance(value, Mapping) or not value:
        raise DataError(f"{where}: no [{what}], which are lists of words by name")
    lists = {str(name): read_texts(words, where, what=f"{what}.{name}") for name, words in value.items()}
    if len(lists) < least:
        raise DataError(f"{where}: {len(lists)} of {what}; {least} are needed to compare them")
    return lists
