"""The language suite: a model judged in any language that has a treebank, without a benchmark.

    suite, data = language_suite(["uk-train.conllu", "uk-dev.conllu"], text="held_out.txt")
    run_suite(SuiteRun(suite=suite, data=data, …), reporter)

- ``masked``: held-out text, as in the English suite; only where one is named.
- ``pairs``: minimal pairs made from the scored sentences (`tree_pairs.py`). By word: the replaced word is more likely
  in its place than the other form, with all of its tokens masked and their number charged (word-level masked NLL). By
  sentence: the good sentence is more likely than the bad one by pseudo-log-likelihood, where the later tokens of a
  word are masked too (word-l2r, Kauf & Ivanova 2023); this takes some thirty times as long, and `quick` leaves it out.
  Baselines: the more frequent form of the treebank, without the scored place; fewer tokens; more frequent tokens.
- ``tags``: parts of speech by a linear head over the frozen encoder, next to the most frequent tag and to that of each
  word form.

Of one treebank, a fifth of its documents (or sentences) is scored and the rest is learned from; of two, the second is
scored. Intervals are over sentences.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.conllu import ABSENT
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.data.labelled.trees import TreeExample, read_trees
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare.labelled_sets import LabelledSet
from larvatus.evaluation.compare.minimal_pairs import PairRun, ScoredPair
from larvatus.evaluation.compare.word_nll import MaskedPassages, masked_word_losses
from larvatus.evaluation.suite.fine_tuned import FineTunedPart, limit_examples
from larvatus.evaluation.suite.masked import LONGEST, MaskedPart
from larvatus.evaluation.suite.part import (
    DataFolder,
    NotMeasured,
    PartResult,
    PartRun,
    Suite,
    SuiteFigure,
    SuitePart,
)
from larvatus.evaluation.suite.tree_pairs import FormLexicon, TreePair, agreement_rules, tree_pairs
from larvatus.metrics.accuracy import clustered_interval
from larvatus.models.loaded import settings_hash
from larvatus.tasks.examples import read_examples
from larvatus.tasks.trainer.config import FineTuneArguments

NAME = "language"
SHARE, MOST_SCORED = 0.2, 2_000
"""Share of a single treebank that is scored, and the largest number of its sentences."""
MOST_PAIRS, QUICK_PAIRS = 200, 100
"""Pairs of each kind that are scored."""
FEWEST_PAIRS = 20
"""Pairs of a kind below which it has no row of its own."""


def language_suite(treebanks: Sequence[str], text: str | None = None) -> tuple[Suite, DataFolder]:
    """The suite of one or two treebanks and a held-out text, and the folder that its files are in."""
    if not 1 <= len(treebanks) <= 2:
        raise UsageError(
            f"the language suite reads one treebank, or two (to learn from, and to score), not {len(treebanks)}; "
            "name them with --treebank FILE"
        )
    given = [*treebanks, *([] if text is None else [text])]
    for name in given:
        if not Path(name).is_file():
            raise DataError(
                f"{name} is not a file; give CoNLL-U with --treebank FILE, and plain text with --corpus FILE"
            )
    root = Path(os.path.commonpath([Path(name).absolute().parent for name in given]))
    places = [Path(name).absolute().relative_to(root).as_posix() for name in given]
    trees = tuple(places[: len(treebanks)])
    scored = trees[1] if len(trees) > 1 else None
    parts: list[SuitePart] = [] if text is None else [MaskedPart(name="masked", title="Masked words", text=places[-1])]
    parts += [
        TreePairsPart(name="pairs", title="Minimal pairs", treebanks=trees),
        TreebankTagsPart(name="tags", title="UPOS", task="tag", train=trees[0], scored=scored, said="other sentences"),
    ]
    words = [word for name in treebanks for word in ("--treebank", name)]
    words += [] if text is None else ["--corpus", text]
    return Suite(name=NAME, parts=tuple(parts), named=tuple(words)), DataFolder(root)


def split_treebank(data: Dataset[Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    """Sentences to learn from and sentences to score, of one treebank; whole documents where it has ten or more."""
    parts = hold_out(data, share=SHARE, most=MOST_SCORED)
    return parts.train, parts.held_out


# Minimal pairs.


@dataclass(frozen=True, kw_only=True)
class TreePairsPart(SuitePart):
    minds: ClassVar = ("quick",)
    treebanks: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return self.treebanks

    def measure(self, work: PartRun) -> PartResult:
        work.need_masked_head()
        most = QUICK_PAIRS if work.settings.quick else MOST_PAIRS
        pairs = self._pairs(work, most)
        guesses = _guesses(pairs, work.bundle.tokenizer)
        rows = [_KindRow("word", "the replaced word, all its tokens masked", self._by_word(work, pairs))]
        if not work.settings.quick:
            rows.append(
                _KindRow("sentence", "the sentence: pseudo-log-likelihood (word-l2r)", self._by_text(work, pairs))
            )
        subset = f"up to {most} pairs of each kind"
        return PartResult(figures=[figure for row in rows for figure in self._figures(pairs, row, guesses, subset)])

    def _pairs(self, work: PartRun, most: int) -> list[_CountedPair]:
        """The pairs, with the frequencies of both forms in the treebank elsewhere."""
        read = [read_trees([str(work.data.path(name))]) for name in self.treebanks]
        if not any(cell != ABSENT for data in read for tree in data for cell in tree.feats):
            raise NotMeasured("the treebank has no FEATS, which minimal pairs are made from", short="no FEATS")
        scored = read[-1].examples if len(read) > 1 else split_treebank(read[0])[1].examples
        trees: list[TreeExample] = [tree for data in read for tree in data]
        lexicon = FormLexicon.of(trees)
        pairs = tree_pairs(scored, lexicon, agreement_rules(trees), most=most)
        if not pairs:
            raise NotMeasured("no word of the treebank has another form of its lemma to replace it", short="no pairs")
        counts = lexicon.counts
        return [_CountedPair(each, counts[each.good] - 1, counts[each.bad]) for each in pairs]

    def _by_word(self, work: PartRun, pairs: Sequence[_CountedPair]) -> list[bool]:
        """Whether the word of the good sentence is more likely in its place than that of the bad one."""
        tokenizer = work.bundle.tokenizer
        passages = MaskedPassages(tuple(each.made.passage(good) for each in pairs for good in (True, False)))
        room = tokenizer.template.single.text_length(min(LONGEST, work.bundle.model.max_positions))
        read = masked_word_losses(work.bundle.network, tokenizer, passages, room=room)
        assert read is not None  # there is a masked head, and every passage hides a word
        return [good < bad for good, bad in zip(read[1][::2], read[1][1::2], strict=True)]

    def _by_text(self, work: PartRun, pairs: Sequence[_CountedPair]) -> list[bool]:
        """Whether the whole good sentence is more likely than the bad one."""
        out = work.folder / "scores.jsonl"
        parts = out.with_name(out.name + ".parts")
        total, tokenizer = len(pairs), work.bundle.tokenizer
        with work.reporter.bar(words="scoring pairs", total=total, every_s=30, goes=True) as bar:
            run = PairRun(
                work.bundle.network,
                tokenizer,
                [each.made.pair for each in pairs],
                method="word-l2r",
                name=work.subject.label,
                progress=lambda done: bar.show(done, f"{done:,} of {total:,} pairs"),
            )
            identity = {"model": work.subject.contents, "tokenizer": settings_hash(tokenizer)}
            run.to_file(out, identity, resume=True, overwrite=not parts.exists())
        return [msgspec.json.decode(line, type=ScoredPair).preferred for line in out.read_bytes().splitlines()]

    def _figures(
        self, pairs: Sequence[_CountedPair], row: _KindRow, guesses: Mapping[str, Sequence[float]], subset: str
    ) -> list[SuiteFigure]:
        """A figure for agreement and one for forms, each with a detail for every kind that has enough pairs."""
        figures = []
        for group, title in (("agreement", "Agreement"), ("form", "Attested form")):
            kinds = [each.kind for each in pairs if each.kind.endswith(group)]
            frequent = sorted(kind for kind, count in Counter(kinds).items() if count >= FEWEST_PAIRS)
            for kind in [group, *frequent] if kinds else []:
                places = [place for place, each in enumerate(pairs) if each.kind.endswith(kind)]
                values = [float(row.right[place]) for place in places]
                low, high = clustered_interval(values, [pairs[place].made.sentence for place in places])
                figures.append(
                    SuiteFigure(
                        id=f"{self.name}/{row.name}/{kind.replace(' ', '-')}",
                        name=title if kind == group else kind,
                        measure=f"accuracy by {row.name}",
                        by=f"good form more likely than bad: {row.by}; ties wrong",
                        value=float(np.mean(values)),
                        low=low,
                        high=high,
                        examples=len(places),
                        baselines={
                            name: float(np.mean([guess[place] for place in places])) for name, guess in guesses.items()
                        },
                        detail=kind != group,
                        conditions=subset,
                    )
                )
        return figures


@dataclass(frozen=True)
class _KindRow:
    """One way to score pairs, and which pairs are right by it."""

    name: str
    by: str
    right: Sequence[bool]


@dataclass(frozen=True)
class _CountedPair:
    """A pair with the number of times that its forms occur in the rest of the treebank."""

    made: TreePair
    good_count: int
    bad_count: int

    @property
    def kind(self) -> str:
        return self.made.pair.groups["linguistics_term"]


def _guesses(pairs: Sequence[_CountedPair], tokenizer: Tokenizer) -> dict[str, list[float]]:
    """For each baseline, 1 where it prefers the good sentence, 1/2 for a tie."""
    good = tokenizer.encode_many([each.made.pair.good for each in pairs])
    bad = tokenizer.encode_many([each.made.pair.bad for each in pairs])
    guesses = {
        "more frequent form": [_wins(each.good_count, each.bad_count) for each in pairs],
        "fewer tokens": [_wins(-len(read), -len(other)) for read, other in zip(good, bad, strict=True)],
    }
    if tokenizer.counts is not None:
        logs = np.log((tokenizer.counts + 1) / (tokenizer.counts.sum() + len(tokenizer.counts)))
        sums = [[float(logs[read.ids].sum()) for read in side] for side in (good, bad)]
        guesses["more frequent tokens"] = [_wins(value, other) for value, other in zip(*sums, strict=True)]
    return guesses


def _wins(good: float, bad: float) -> float:
    return 0.5 if good == bad else float(good > bad)


# Tags.


@dataclass(frozen=True, kw_only=True)
class TreebankTagsPart(FineTunedPart):
    """Parts of speech by a linear head over the frozen encoder."""

    def labelled(self, work: PartRun) -> LabelledSet:
        data = read_examples(self.task, [str(work.data.path(self.train))])
        if self.scored is None:
            data, scored = split_treebank(data)
        else:
            scored = read_examples(self.task, [str(work.data.path(self.scored))], kind=data.kind)
        train, dev, _ = hold_out(limit_examples(data, work.settings.examples))
        return LabelledSet(task=self.task, name=self.title, train=train, dev=dev, test=scored)

    def job(self, work: PartRun, data: LabelledSet) -> FineTuneArguments:
        given = {"epochs": work.settings.epochs, "rate": work.settings.rate, "trained": "head"}
        return self.arguments(work, {name: value for name, value in given.items() if value is not None})

    def baselines(self, data: LabelledSet, metric: str) -> dict[str, float]:
        tags = Counter(tag for example in data.train for tag in example.tags)
        common, _ = tags.most_common(1)[0]
        scored = [tag for example in data.scored for tag in example.tags]
        always = {f"always {common}": sum(tag == common for tag in scored) / len(scored)}
        return {**always, **super().baselines(data, metric)}
