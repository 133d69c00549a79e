"""Contexts with endings as the model reads them, a sequence for each ending (or its windows), and the model's choices.

data = encode_choices(bundle, examples, windows)
data.batch(np.array([3, 0]))                     # two examples, each a group of sequences that is never split
logits = ending_scores(model, data, scoring)     # [E, most endings], ABSENT where an example has fewer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core import notebook
from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.tables import Tabular
from larvatus.core.targets import ChoiceTargets
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.multiple_choice import MultipleChoice
from larvatus.models.network import Network
from larvatus.tasks.choose.reader import ChoiceExample
from larvatus.tasks.classify.classify import Merge, merge_windows
from larvatus.tasks.encoding.pair_lists import PairLists
from larvatus.tasks.encoding.sequences import text_sequences
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.results import Coverage, Piece, best
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences

ABSENT = -1e30
"""The score of an ending that there is not: its probability is 0 at every temperature, and it is finite."""


@dataclass(frozen=True, eq=False)
class EncodedChoices(PairLists):
    """E examples: pairs of a context with each of its endings."""

    endings: Ints  # [E]
    labels: Ints  # [E] IGNORE where nobody knows

    @property
    def sizes(self) -> Ints:
        return self.endings

    def targets(self, examples: Ints) -> ChoiceTargets[Ints]:
        return ChoiceTargets(
            windows=self.sequences.parts[self.pairs_of(examples)],
            endings=self.endings[examples],
            labels=self.labels[examples],
        )

    @property
    def coverage(self) -> list[Coverage]:
        """How much of each example is read: of all its pairs."""
        starts = edges(self.endings)[:-1]
        columns = (self.sequences.tokens, self.sequences.read, self.sequences.parts)
        sums = (np.add.reduceat(column, starts).tolist() for column in columns)
        return [
            Coverage(tokens=tokens, read=read, windows=windows) for tokens, read, windows in zip(*sums, strict=True)
        ]


def encode_choices(bundle: Bundle, examples: Sequence[ChoiceExample], windows: WindowOptions) -> EncodedChoices:
    """Examples, labelled or not, as the model reads them."""
    sequences = text_sequences(
        bundle.tokenizer,
        [pair for example in examples for pair in example.pairs],
        limit=windows.limit,
        truncate=windows.truncate,
        overlap=windows.overlap,
    )
    labels = [IGNORE if example.label is None else example.label for example in examples]
    return EncodedChoices(
        sequences,
        endings=np.array([len(example.endings) for example in examples], np.int64),
        labels=np.array(labels, np.int64),
    )


def chooser_of(model: Network, name: str = "the model") -> MultipleChoice:
    """The head of a model that chooses endings."""
    return head_as(model, MultipleChoice, "choose endings", name)


def ending_scores(model: Network, data: EncodedChoices, scoring: ScoringOptions, merge: Merge = "mean") -> Floats:
    """Scores of the endings of each example, from its windows: [E, most endings]."""
    return scores_by_example(score_sequences(model, data.sequences, scoring), data, merge)


def scores_by_example(scores_S1: Floats, data: EncodedChoices, merge: Merge = "mean") -> Floats:
    """From the scores of all windows to a row for each example, `ABSENT` where it has fewer endings than others."""
    rows = np.full((len(data), int(data.endings.max(initial=0))), ABSENT, np.float32)
    rows[np.repeat(np.arange(len(data)), data.endings), ranges(data.endings)] = merge_windows(
        scores_S1, data.sequences.parts, merge
    )[:, 0]
    return rows


@dataclass(frozen=True, kw_only=True)
class Chosen(Tabular):
    """A context with the likeliest of its endings."""

    context: str
    choice: int
    """The number of the ending, from 0."""
    probabilities: dict[str, float]
    """Probability of every ending, in the order in which they were given."""
    coverage: Coverage

    @property
    def endings(self) -> tuple[str, ...]:
        return tuple(self.probabilities)

    @property
    def ending(self) -> str:
        """The text of the ending."""
        return self.endings[self.choice]

    @property
    def probability(self) -> float:
        """Probability of the ending."""
        return self.probabilities[self.ending]

    def _repr_html_(self) -> str:
        return notebook.bars(self.probabilities.items(), title=self.context, note=str(self))

    def to_dict(self) -> dict[str, Any]:
        return {
            "context": self.context,
            "choice": self.choice,
            "ending": self.ending,
            "probability": self.probability,
            "probabilities": self.probabilities,
            **self.coverage.to_dict(),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each ending, in the order in which they were given."""
        return [
            {
                "context": self.context,
                "number": number,
                "ending": ending,
                "probability": probability,
                "chosen": number == self.choice,
            }
            for number, (ending, probability) in enumerate(self.probabilities.items())
        ]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        for number, (ending, probability) in enumerate(best(self.probabilities, top or 1)):
            if number:
                yield Piece("  ")
            yield Piece(f"{self.endings.index(ending)} {probability:.3f} ", "bold")
            yield Piece(ending)
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.context)

    def __str__(self) -> str:
        return f"{self.choice}: {self.ending} {self.probability:.3f}"
