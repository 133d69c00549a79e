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

from larvatus.core.signals import Stop
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.few_shot.hidden import TEXTS_PER_EXAMPLE, MaskedPrompts
from larvatus.tasks.few_shot.settings import FewShotTraining
from larvatus.tasks.prompt.options import PromptOptions
from larvatus.tasks.prompt.prompted import prompt_config
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.settings import Runtime


@dataclass(frozen=True, kw_only=True, eq=False)
class FewShot:
    """A model, the words of its labels, and how it learns."""

    bundle: Bundle
    words: Mapping[str, tuple[str, ...]]
    patterns: tuple[str, ...]
    training: FewShotTraining
    runtime: Runtime
    stop: Stop = field(default_factory=Stop)

    def tune(
        self, pattern: str, few: Dataset[TextExample], *, seed: int, unlabelled: Dataset[TextExample] | None = None
    ) -> FineTuneResult:
        """Through a pattern; beside it, where that is asked for, the masked language model of unlabelled texts."""
        options = PromptOptions(pattern=pattern, verbaliser=self.words)
        args = self.arguments(len(few), seed, options=options)
        if unlabelled is not None and self.training.mlm_share:
            args = dataclasses.replace(args, auxiliary=self._auxiliary(pattern, few, unlabelled))
        return finetune("prompt", self.bundle, few, None, args)

    def _auxiliary(self, pattern: str, few: Dataset[TextExample], unlabelled: Dataset[TextExample]) -> MaskedPrompts:
        training, pair = self.training, few.examples[0].pair is not None
        config = prompt_config(self.bundle, pattern=pattern, words=self.words, labels=few.label_names(), pair=pair)
        return MaskedPrompts.of(
            self.bundle,
            config,
            unlabelled.examples,
            share=training.mlm_share,
            texts=TEXTS_PER_EXAMPLE * min(training.batch, len(few)),
            limit=WindowOptions.of(self.bundle, length=training.length).limit,
        )

    def finetune(self, few: Dataset[TextExample], *, seed: int) -> FineTuneResult:
        """Plainly."""
        return finetune("classify", self.bundle, few, None, self.arguments(len(few), seed, options=ClassifyOptions()))

    def arguments(
        self, examples: int, seed: int, *, options: Struct | None, steps: int | None = None
    ) -> FineTuneArguments:
        """So many steps over so many examples."""
        training = self.training
        each = -(-examples // training.batch)
        config = TrainConfig(
            epochs=max(1, round((steps or training.steps) / each)),
            batch=training.batch,
            rate=training.rate,
            length=training.length,
            evaluations=1,
            trained=TrainableConfig.read(training.trained),
        )
        callbacks = Callbacks(stop=self.stop)
        return FineTuneArguments(
            config=config, options=options, runtime=self.runtime, seeds=(seed,), hold_out=False, callbacks=callbacks
        )
