"""PET as a run with a directory of its own: locked, resumable, saved as an ordinary classifier.

    run(PetRun(task="classify", bundle=bundle, name="runs/mine", train=few, dev=None, out=out, unlabelled=texts,
                 few_shot=few_shot, seed=0), args)

What each pattern said of the unlabelled texts is kept beside the checkpoints: a run that was stopped while the patterns
learnt goes on with the next of them, one that was stopped while the classifier learnt goes on at its step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, Preempted
from larvatus.core.ranges import Seed
from larvatus.core.regular_files import is_there
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.tasks.few_shot.pet import PatternEnsemble, PatternScores, distil, train_ensemble
from larvatus.tasks.few_shot.settings import FewShotTraining
from larvatus.tasks.few_shot.training import FewShot
from larvatus.tasks.trainer.checkpoint import check_same_run
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.run import ENSEMBLE, FineTuneRun
from larvatus.tasks.trainer.save import contents_hash
from larvatus.training.engine.checkpoint import FOLDER, NEW_RUN


class PetIdentity(Struct, frozen=True, kw_only=True):
    """What a resume must find again, besides what every fine-tuning has."""

    patterns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    training: FewShotTraining
    unlabelled: str
    """Hash of what they say."""
    seed: Seed


@dataclass(frozen=True, kw_only=True, eq=False)
class PetRun(FineTuneRun):
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
            again = "the same command with --resume trains this pattern anew, and what comes after"
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
        raise ArtefactError(f"{path} is not what patterns said: {fault}; start anew in another --out") from fault
