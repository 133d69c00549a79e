"""A prompt, or a plain classifier, trained on few examples by the machinery of `larvatus finetune`.

    tuned = few_shot.tune(pattern, few, seed=3)          # through the pattern
    tuned = few_shot.finetune(few, seed=3)               # a new head on [CLS], the same steps

Nothing is held out: with so few examples all are learnt from, for a fixed number of steps, and the last weights stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from larvatus.bundle.directory import Bundle
from larvatus.engine.settings import Runtime
from larvatus.labelled.records import Dataset, TextExample
from larvatus.prompting.settings import FewTraining
from larvatus.signals import Stop
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.fit.finetune import Job, Tuned, Watch, finetune
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.tasks.fit.trained import TrainedConfig
from larvatus.tasks.prompt.options import PromptOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class FewShot:
    """A model, the words of its labels, and how it learns."""

    bundle: Bundle
    words: Mapping[str, tuple[str, ...]]
    patterns: tuple[str, ...]
    training: FewTraining
    runtime: Runtime
    stop: Stop = field(default_factory=Stop)

    def tune(self, pattern: str, few: Dataset[TextExample], *, seed: int) -> Tuned:
        """Through a pattern."""
        options = PromptOptions(pattern=pattern, verbaliser=self.words)
        return finetune("prompt", self.bundle, few, None, self.job(len(few), seed, options=options))

    def finetune(self, few: Dataset[TextExample], *, seed: int) -> Tuned:
        """Plainly."""
        return finetune("classify", self.bundle, few, None, self.job(len(few), seed, options=ClassifyOptions()))

    def job(self, examples: int, seed: int, *, options: Struct | None, steps: int | None = None) -> Job:
        """So many steps over so many examples."""
        training = self.training
        each = -(-examples // training.batch)
        config = FineTuneConfig(
            epochs=max(1, round((steps or training.steps) / each)),
            batch=training.batch,
            rate=training.rate,
            length=training.length,
            evaluations=1,
            trained=TrainedConfig.read(training.trained),
        )
        watch = dataclasses.replace(Watch(), stop=self.stop)
        return Job(config=config, options=options, runtime=self.runtime, seeds=(seed,), hold_out=False, watch=watch)
