"""PET (Schick & Schütze 2021): patterns learn from few examples, label many texts together, and one classifier learns
from that.

    s(l | x) = 1/Z Σ_p w(p) s_p(l | x)        q = softmax(s / T), T = 2        w(p): accuracy of p before training

    soft = train_ensemble(few_shot, few, unlabelled, seed=0)
    tuned = distil(few_shot, few, unlabelled, soft.labels(2.0), args)

The classifier has an ordinary head on [CLS]: what is saved classifies as any fine-tuned model does. U unlabelled texts,
K labels, P patterns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.core.arrays import Floats
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, Preempted
from larvatus.core.ranges import Seed
from larvatus.core.regular_files import is_there
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.metrics.calibration import softmax
from larvatus.tasks.classify.classify import LabelledTexts, encode_texts, label_array
from larvatus.tasks.classify.task import ClassifyTask
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.few_shot.results import FewShotTraining
from larvatus.tasks.few_shot.training import FewShot
from larvatus.tasks.prompt.prompted import prompt_config, prompt_scores, score_prompt
from larvatus.tasks.task import TaskData
from larvatus.tasks.trainer.checkpoint import check_same_run
from larvatus.tasks.trainer.config import FineTuneArguments, scoring_options
from larvatus.tasks.trainer.finetune import FineTuneResult, train_seeds
from larvatus.tasks.trainer.run import ENSEMBLE, FineTuneRun
from larvatus.tasks.trainer.save import contents_hash
from larvatus.training.engine.checkpoint import FOLDER, NEW_RUN

CLASSIFY = ClassifyTask()


@dataclass(frozen=True, eq=False)
class PatternScores:
    """Scores of one pattern on the unlabelled texts, after training."""

    pattern: str
    weight: float
    """Its accuracy on the few examples before training."""
    scores: Floats  # [U, K]


@dataclass(frozen=True, eq=False)
class PatternEnsemble:
    members: tuple[PatternScores, ...]

    @property
    def scores(self) -> Floats:
        """[U, K] the weighted mean; unweighted where no pattern got anything right before training."""
        weights = np.array([member.weight for member in self.members])
        weights = weights if weights.sum() > 0 else np.ones(len(weights))
        stacked = np.stack([member.scores for member in self.members]).astype(np.float64)
        return np.asarray(np.tensordot(weights / weights.sum(), stacked, 1), np.float32)

    def labels(self, temperature: float) -> Floats:
        """[U, K] soft labels."""
        return np.asarray(softmax(self.scores / temperature), np.float32)


def train_ensemble(
    few_shot: FewShot,
    few: Dataset[TextExample],
    unlabelled: Dataset[TextExample],
    *,
    seed: int,
    done: Sequence[PatternScores] = (),
    keep: Callable[[PatternScores], None] = lambda member: None,
) -> PatternEnsemble:
    """Train every pattern on the few examples and score the unlabelled texts; those that are `done` are reused."""
    members = list(done)
    for pattern in few_shot.patterns[len(members) :]:
        members.append(_member(few_shot, pattern, few, unlabelled, seed))
        keep(members[-1])
    return PatternEnsemble(tuple(members))


def _member(
    few_shot: FewShot, pattern: str, few: Dataset[TextExample], unlabelled: Dataset[TextExample], seed: int
) -> PatternScores:
    weight = accuracy_before(few_shot, pattern, few)
    tuned = few_shot.tune(pattern, few, seed=seed, unlabelled=unlabelled).bundle
    scoring = scoring_options(few_shot.runtime)
    limit = WindowOptions.of(tuned, length=few_shot.training.length).limit
    return PatternScores(pattern, weight, prompt_scores(tuned, unlabelled.examples, limit=limit, scoring=scoring))


def accuracy_before(few_shot: FewShot, pattern: str, few: Dataset[TextExample]) -> float:
    """Accuracy of a pattern on the examples, before it is trained on them."""
    labels = few.label_names()
    pair = few.examples[0].pair is not None
    config = prompt_config(few_shot.bundle, pattern=pattern, words=few_shot.words, labels=labels, pair=pair)
    length, scoring = few_shot.training.length, scoring_options(few_shot.runtime)
    asked = score_prompt(few_shot.bundle, config, few.examples, length=length, scoring=scoring)
    return float((asked.scores.argmax(1) == label_array(few.examples, config)).mean())


def distil(
    few_shot: FewShot,
    few: Dataset[TextExample],
    unlabelled: Dataset[TextExample],
    soft: Floats,
    args: FineTuneArguments,
) -> FineTuneResult:
    """Train one classifier on soft labels [U, K]; its classes are those of the few examples."""
    bundle = few_shot.bundle
    head = CLASSIFY.head(bundle, few, args)
    config = args.config.with_defaults(CLASSIFY.defaults, len(unlabelled), linear=CLASSIFY.is_linear(head))
    encoded = LabelledTexts(encode_texts(bundle, unlabelled.examples, head, args.windows(bundle)), soft)
    names = np.array(head.labels)[soft.argmax(1)].tolist()
    labelled = [dataclasses.replace(each, label=name) for each, name in zip(unlabelled.examples, names, strict=True)]
    train = dataclasses.replace(unlabelled, examples=tuple(labelled), kind="multi-class")
    data = TaskData(head=head, encoded=encoded, validation=None, train=train, dev=None)
    return train_seeds(bundle, data, dataclasses.replace(args, config=config))


class PetIdentity(Struct, frozen=True, kw_only=True):
    """Inputs that must be equal on resume, in addition to those of every fine-tuning run."""

    patterns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    training: FewShotTraining
    unlabelled: str
    """Hash of their contents."""
    seed: Seed


@dataclass(frozen=True, kw_only=True, eq=False)
class PetRun(FineTuneRun):
    """PET as a run in its own directory: locked, resumable, saved as an ordinary classifier.

    The scores of each pattern on the unlabelled texts are kept next to the checkpoints. A run that was stopped while
    the patterns were trained continues with the next pattern; one that was stopped while the classifier was trained
    continues at its step.
    """

    ranked = False

    few_shot: FewShot
    unlabelled: Dataset[TextExample]
    seed: int

    def identity(self) -> PetIdentity:
        return PetIdentity(
            patterns=self.few_shot.patterns,
            words=self.few_shot.words,
            training=self.few_shot.training,
            unlabelled=contents_hash(self.unlabelled),
            seed=self.seed,
        )

    def arguments(self) -> FineTuneArguments:
        steps = self.few_shot.training.distil_steps
        return self.few_shot.arguments(len(self.unlabelled), self.seed, options=self.identity(), steps=steps)

    def finetune(self, train: Dataset[TextExample], args: FineTuneArguments) -> FineTuneResult:
        few_shot = dataclasses.replace(self.few_shot, stop=args.callbacks.stop)
        soft = self._ensemble(few_shot, train, args)
        for member in soft.members:
            args.say(f"{member.pattern}: {member.weight:.1%} of the few examples right before training")
        plain = dataclasses.replace(args, options=None)
        return distil(few_shot, train, self.unlabelled, soft.labels(few_shot.training.temperature), plain)

    def _ensemble(self, few_shot: FewShot, train: Dataset[TextExample], args: FineTuneArguments) -> PatternEnsemble:
        path = self.out / FOLDER / ENSEMBLE
        identity = _plain(self.identity())
        done = _members(path, self.out, identity) if self.resume and is_there(path) else []

        def keep(member: PatternScores) -> None:
            done.append(member)
            write_checksummed(path, {"identity": identity, "members": [_record(each) for each in done]})

        try:
            return train_ensemble(few_shot, train, self.unlabelled, seed=self.seed, done=tuple(done), keep=keep)
        except Preempted as fault:
            again = "the same command with --resume trains this pattern again, and what comes after"
            raise Preempted(f"{fault}; {again}") from fault


def _plain(identity: PetIdentity) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))
    return plain


def _record(member: PatternScores) -> dict[str, Any]:
    return {"pattern": member.pattern, "weight": member.weight, "scores": member.scores.tolist()}


def _members(path: Path, out: Path, identity: dict[str, Any]) -> list[PatternScores]:
    held = read_checksummed(path, way=NEW_RUN)
    try:
        check_same_run(out, held["identity"], identity)
        return [
            PatternScores(record["pattern"], float(record["weight"]), np.array(record["scores"], np.float32))
            for record in held["members"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise ArtefactError(
            f"{path} is not what the patterns predicted: {fault}; start again in another --out"
        ) from fault
