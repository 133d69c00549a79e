"""What a model associates with groups of people, as one call.

audit_bias("runs/mine", pairs="crows_pairs.csv", winobias="winobias/").parts["winobias"].scores["all"].gap
audit_bias("runs/reviews", test="test.tsv").parts["swaps"].categories["gender"].changed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from larvatus.core.errors import UsageError
from larvatus.core.files import sha256
from larvatus.core.outputs import check_directory
from larvatus.core.ranges import Seed, whole
from larvatus.core.settings import Flag, PathName, Settings
from larvatus.data.labelled.in_memory import Examples
from larvatus.evaluation.audit.bias.associations import read_associations, score_associations
from larvatus.evaluation.audit.bias.pairs import read_crows, sample_pairs, score_crows
from larvatus.evaluation.audit.bias.reader import LikelihoodReader, Progress
from larvatus.evaluation.audit.bias.report import REPORT, BiasReport, Resampling
from larvatus.evaluation.audit.bias.stereoset import read_stereoset, score_stereoset
from larvatus.evaluation.audit.bias.swaps import audit_swaps, read_swaps
from larvatus.evaluation.audit.bias.templates import read_templates, score_templates
from larvatus.evaluation.audit.bias.winobias import read_winobias, score_winobias, winobias_files
from larvatus.evaluation.cards.claims import bias_claims
from larvatus.inference.model import Model
from larvatus.inference.vectors.pooling import word_layers
from larvatus.interfaces.api.evaluating import read_for
from larvatus.interfaces.api.task_settings import split_columns
from larvatus.interfaces.settings import loaded_model, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import AuditBiasKeywords

SAMPLES = whole(2, 10_000_000)
PERMUTATIONS = whole(100, 10_000_000)
MOST_PAIRS = whole(2, 10_000_000)
PARTS = ("crows_pairs", "stereoset", "winobias", "templates", "associations", "swaps")


class BiasSettings(Settings):
    """How figures and their intervals are found, and where they go."""

    samples: Annotated[int, SAMPLES] = 1000
    """Samples of the bootstrap."""
    permutations: Annotated[int, PERMUTATIONS] = 10_000
    """Permutations of the test of --associations, if there are too many to try all."""
    seed: Seed = 0
    """Seed of bootstrap, permutations and --most-pairs."""
    most_pairs: Annotated[int, MOST_PAIRS] | None = None
    """Pairs of --pairs to score, sampled at random; default: all."""
    layers: str | None = None
    """Layers of --associations: last, last4 (mean), a number (0: embeddings); default: the model's own for words."""
    standardise: Annotated[PathName | None, Flag(metavar="NAME")] = None
    """Standardiser of --associations, next to plain vectors: name that isotropy fit saved, or a file."""
    out: Annotated[Path | None, Flag(metavar="DIR")] = None
    """A directory for JSON: bias.json, and a file for each set."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""

    @property
    def resampling(self) -> Resampling:
        return Resampling(self.samples, self.seed)


def audit_bias(
    model: str | Path | Model,
    *,
    pairs: str | Path | Sequence[tuple[str, ...]] | None = None,
    stereoset: str | Path | None = None,
    winobias: str | Path | None = None,
    templates: str | Path | Mapping[str, Any] | None = None,
    associations: str | Path | Mapping[str, Any] | None = None,
    test: Examples | None = None,
    swaps: str | Path | Sequence[Sequence[str]] | None = None,
    **settings: Unpack[AuditBiasKeywords],
) -> BiasReport:
    """What a model associates with groups of people, by each of the sets that are given, with 95% intervals.

    Args:
        model: A model directory, a hub name, or a loaded model. Pairs, StereoSet, WinoBias and templates need a
            masked-lm head; association tests any encoder; swaps a model fine-tuned to classify.
        pairs: A CSV file as of CrowS-Pairs, or pairs (sent_more, sent_less, bias type, stereo or antistereo), of which
            the last two may be left out: preferences by pseudo-log-likelihood and by AUL.
        stereoset: A JSON file as of StereoSet: lms, ss and icat.
        winobias: A directory with the files of WinoBias: pronouns in blanks.
        templates: A TOML file, or the same as a mapping: `sentences` with `[GROUP]` and `[MASK]`, `groups`,
            `attributes`.
        associations: A TOML file, or the same as a mapping: `tests`, each with two `targets` and two `attributes`, and
            `sentences` with `[WORD]`.
        test: Labelled examples of the user's own, in any of the ways that `evaluate` takes them: group words in them
            are swapped.
        swaps: With `test`: a file of swaps, `he,she,gender` a line, or such rows; by default English words of gender.
        **settings: `samples`, `permutations`, `seed`, `most_pairs` (this many of `pairs`, at random), `layers`,
            `standardise`, `out` (a directory for JSON), `overwrite`, `device`, `progress` (called with what is done,
            how many and of how many); names of columns.

    Returns:
        The report: `.parts` by name, each with its figures and `limits`, what it does not measure. Printed, it is text.

    Example:
        >>> words = {"sentences": ["[GROUP] was [MASK]."], "groups": {"r": ["the river"], "b": ["the bank"]},
        ...          "attributes": {"size": ["wide", "deep"]}}
        >>> report = audit_bias(model, templates=words, samples=20)
        >>> report.parts["templates"].differences[0].groups
        ('r', 'b')
    """
    progress, device = settings.pop("progress", _no_progress), settings.pop("device", "auto")
    columns, others = split_columns(settings)
    (chosen,) = read_settings(others, BiasSettings, function="audit_bias")
    sources = (pairs, stereoset, winobias, templates, associations, test)
    sets = {name: source for name, source in zip(PARTS, sources, strict=True) if source is not None}
    return run_bias_audit(model, sets, swaps, columns, chosen, device=device, progress=progress)


def _no_progress(what: str, done: int, total: int) -> None:
    pass


def run_bias_audit(
    model: str | Path | Model,
    sets: Mapping[str, Any],
    swaps: Any,
    columns: Mapping[str, Any],
    chosen: BiasSettings,
    *,
    device: str = "auto",
    progress: Progress = _no_progress,
) -> BiasReport:
    """Run `audit_bias` from structs; `sets` are sources by the names of `PARTS`."""
    audit = _Audit(sets, swaps, columns, chosen, progress)
    audit.check(model)
    loaded = loaded_model(model, device)
    audit = replace(audit, chosen=msgspec.structs.replace(chosen, layers=word_layers(loaded, chosen.layers)))
    report = audit.report(loaded)
    return report if chosen.out is None else report.saved(chosen.out)


@dataclass(frozen=True)
class _Audit:
    """Sets of an audit, and its settings."""

    asked: Mapping[str, Any]
    """Sets by the names of `PARTS`."""
    swaps: Any
    columns: Mapping[str, Any]
    chosen: BiasSettings
    progress: Progress

    def check(self, model: Any) -> None:
        """Refuse what makes no sense before anything is loaded."""
        if not self.asked:
            raise UsageError(
                "nothing to audit with; give pairs, stereoset, winobias, templates, associations or test (--pairs FILE)"
            )
        if "swaps" not in self.asked and (self.swaps is not None or self.columns):
            raise UsageError("swaps and columns are for labelled examples; name some: test (--test FILE)")
        if "crows_pairs" not in self.asked and self.chosen.most_pairs is not None:
            raise UsageError("most_pairs (--most-pairs) samples sentence pairs; name some: pairs (--pairs FILE)")
        if self.chosen.out is not None:
            given = (model, *self.asked.values(), self.swaps)
            read = [source for source in given if isinstance(source, str | Path)]
            names = (REPORT, *(f"{name}.json" for name in self.asked))
            check_directory(self.chosen.out, names, overwrite=self.chosen.overwrite, inputs=read)

    def report(self, model: Model) -> BiasReport:
        settings = msgspec.structs.asdict(self.chosen)
        report = BiasReport(
            model=str(model.bundle.path),
            fingerprint=model.fingerprint,
            settings={name: value for name, value in settings.items() if name not in ("out", "overwrite")},
            data=dict(_hashes({**self.asked, "swap_words": self.swaps})),
            parts={name: self.part(model, name, source) for name, source in self.asked.items()},
        )
        sources = {name: self.sources(name) for name in self.asked}
        said = {"columns": dict(self.columns), "own_words": self.swaps is not None}
        of_swaps = {name: value for name, value in said.items() if value}
        return replace(report, claims=bias_claims(report, model, sources=sources, swap_settings=of_swaps))

    def sources(self, part: str) -> list[Any]:
        """What a part was read from, file by file."""
        given = self.asked[part]
        if part == "winobias":
            return list(winobias_files(Path(given)))
        if part != "swaps":
            return [given]
        tests = [given] if isinstance(given, str | Path) or not isinstance(given, Sequence) else list(given)
        return [*tests, *([] if self.swaps is None else [self.swaps])]

    def part(self, model: Model, name: str, source: Any) -> Any:
        """The result of one set; its file is read before the model is used."""
        how = self.chosen.resampling
        if name == "associations":
            return score_associations(
                model,
                read_associations(source),
                how,
                layers=self.chosen.layers or "last",
                standardiser=model.standardiser(self.chosen.standardise),
                permutations=self.chosen.permutations,
            )
        if name == "swaps":
            swapper = read_swaps(self.swaps)
            return audit_swaps(model, read_for(model.bundle, source, self.columns), swapper, how)
        if name == "templates":
            return score_templates(self.reader(model, "fill templates"), read_templates(source), how)
        read, score, what = _BY_LIKELIHOOD[name]
        examples = read(source)
        if name == "crows_pairs" and self.chosen.most_pairs is not None:
            examples = sample_pairs(examples, self.chosen.most_pairs, self.chosen.seed)
        return score(self.reader(model, what), examples, how, source=_name(source))

    def reader(self, model: Model, what: str) -> LikelihoodReader:
        return LikelihoodReader.of(model, what=what, progress=self.progress)


_BY_LIKELIHOOD: Mapping[str, tuple[Callable[[Any], Any], Callable[..., Any], str]] = {
    "crows_pairs": (read_crows, score_crows, "score sentence pairs"),
    "stereoset": (read_stereoset, score_stereoset, "score StereoSet"),
    "winobias": (read_winobias, score_winobias, "fill pronouns"),
}
"""How a set is read and scored, and what the model must have a head for."""


def _name(given: Any) -> str:
    return str(given) if isinstance(given, str | Path) else f"{len(given):,} pairs in memory"


def _hashes(sources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Reports of every named file by part; with its file name if there are several or it is in a directory."""
    for name, source in sources.items():
        paths = [Path(path) for path in ([source] if isinstance(source, str | Path) else _files(source))]
        for path in paths:
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                if file.is_file():
                    yield name if file == path and len(paths) == 1 else f"{name}/{file.name}", sha256(file)


def _files(source: Any) -> list[str | Path]:
    """Names of files among several examples."""
    return [each for each in source if isinstance(each, str | Path)] if isinstance(source, list | tuple) else []
