"""Few examples sampled from many, and a prompt or a plain classifier fine-tuned on them.

    few = sample_examples(train, 16, seed=0, number=2)         # the third sample of 16 per class (LM-BFF, Gao 2021)
    sample_examples(train, 100, seed=0, number=2, total=True)  # 100 in all, classes as even as possible (PET's tables)
    few_shot.tune(pattern, few, seed=3)                        # through the pattern
    few_shot.finetune(few, seed=3)                             # a new head on [CLS], the same steps

A sample is f(seed, number, contents), independent of the order of the file, and larger samples contain smaller ones.
Labels alternate, so that the first examples, which demonstrations may be cut to, show all labels.

Nothing is held out: all examples are trained on for a fixed number of steps, and the last weights are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import msgspec
import numpy as np
from msgspec import Struct
from torch import Tensor

from larvatus.core import rng
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.rng import derive, stream
from larvatus.core.signals import Stop
from larvatus.data.corruption import MaskingConfig, MaskVocabulary, corrupt
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import Verbaliser, VerbaliserConfig
from larvatus.models.network import Network
from larvatus.models.objectives import Loss
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions
from larvatus.tasks.few_shot.results import FewShotTraining
from larvatus.tasks.prompt.pattern import PromptOptions, encode_prompts
from larvatus.tasks.prompt.prompted import prompt_config
from larvatus.tasks.scoring import head_as
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.settings import Runtime


def sample_examples(
    data: Dataset[TextExample], k: int, *, seed: int, number: int, total: bool = False
) -> Dataset[TextExample]:
    """The sample of that number; refused if a class has too few different examples."""
    check_classes(data)
    labels = data.label_names()
    if total and k < len(labels):
        raise UsageError(
            f"{k} examples in all do not show each of {len(labels)} classes; give --k {len(labels)} or more"
        )
    wanted = [k // len(labels) + (n < k % len(labels)) if total else k for n in range(len(labels))]
    by_label: dict[str, dict[int, TextExample]] = {label: {} for label in labels}
    for example in data.examples:
        by_label[str(example.label)].setdefault(_key(example, seed, number), example)
    columns = []
    for label, count in zip(labels, wanted, strict=True):
        if count > len(by_label[label]):
            raise DataError(
                f"{data.source}: {count} examples of {label!r} are to be drawn, but there are {len(by_label[label])} "
                "that differ; give a smaller --k"
            )
        columns.append([example for _, example in sorted(by_label[label].items(), key=lambda item: item[0])[:count]])
    examples = tuple(example for example in chain(*zip_longest(*columns)) if example is not None)
    said = f"draw {number}: {k} {'in all' if total else 'a class'}"
    return dataclasses.replace(data, examples=examples, notes=(*data.notes, said))


def unlabelled_rest(
    data: Dataset[TextExample], drawn: Dataset[TextExample], most: int, *, seed: int, number: int
) -> Dataset[TextExample]:
    """At most `most` examples that were not sampled, without their labels."""
    gone = {_key(example, seed, number) for example in drawn.examples}
    rest = {_key(example, seed, number): example for example in data.examples}
    chosen = [rest[key] for key in sorted(rest.keys() - gone)[:most]]
    return dataclasses.replace(data, examples=tuple(dataclasses.replace(example, label=None) for example in chosen))


def check_classes(data: Dataset[TextExample]) -> None:
    if data.kind not in (None, "multi-class") or len(data.label_names()) < 2:
        kind = data.kind or "none"
        raise UsageError(f"{data.source}: prompts need two classes or more; labels there are {kind}")


def _key(example: TextExample, seed: int, number: int) -> int:
    said = msgspec.json.encode([example.text, example.pair]).decode()
    return rng.derive(seed, f"prompt draw\x00{said}", number)


TEXTS_PER_EXAMPLE = 3
"""Unlabelled texts that are read with each labelled one (published: 12 with 4)."""
HIDING = MaskingConfig(replacement="uniform")


@dataclass(frozen=True, eq=False)
class MaskedPrompts:
    """PET's auxiliary loss (Schick & Schütze 2021, §3.1): masked language modelling during the training of a pattern.

    L = (1 − α) L_CE + α L_MLM        α = 1e-4 as published

    Few examples would make the model forget its language. So each step also reads unlabelled texts in the pattern, its
    blank as it is, and predicts masked tokens: 15% of the tokens, as in BERT (80% masked, 10% replaced, 10% kept), by
    the masked-lm head that also reads the pattern. Three unlabelled texts come with each labelled one, as published.
    """

    sequences: Sequences
    vocabulary: MaskVocabulary
    share: float
    texts: int
    """Texts of a step."""

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        config: VerbaliserConfig,
        unlabelled: Sequence[TextExample],
        *,
        share: float,
        texts: int,
        limit: int,
    ) -> MaskedPrompts:
        """`limit` tokens of a sequence at most."""
        tokenizer = bundle.tokenizer
        vocabulary = MaskVocabulary(
            mask_id=config.mask, size=tokenizer.size, special_ids=frozenset({*tokenizer.special_ids, config.mask})
        )
        prompts = encode_prompts(tokenizer, config, unlabelled, limit=limit)
        return cls(prompts.sequences, vocabulary, share, texts)

    def batch(self, step: int, *, seed: int) -> TrainingBatch[Ints]:
        """The texts of a step: each epoch over them is a permutation of all."""
        places = step * self.texts + np.arange(self.texts)
        epochs, within = np.divmod(places, len(self.sequences))
        orders = {
            int(n): stream(seed, "unlabelled order", int(n)).permutation(len(self.sequences)) for n in set(epochs)
        }
        chosen = np.array([orders[int(epoch)][place] for epoch, place in zip(epochs, within, strict=True)], np.int64)
        tokens = self.sequences.batch(self.sequences.of(chosen))
        tokens = dataclasses.replace(tokens, words=tokens.positions)  # each a word of its own, so that it may be hidden
        batch = TrainingBatch(tokens=tokens, targets={})
        hiding = derive(seed, "hidden prompts")
        return corrupt(batch, HIDING, vocabulary=self.vocabulary, seed=hiding, epoch=step, items=np.arange(len(chosen)))

    def count(self, batch: TrainingBatch[Ints]) -> int:
        """Hidden tokens."""
        return int(batch.targets[MaskedTokens].count)

    def loss(self, model: Network, batch: TrainingBatch[Tensor], *, limit: int) -> Loss:
        words = head_as(model, Verbaliser, "classify through a blank").words
        return words.loss(model.encoder(batch.tokens, limit=limit), batch, model.encoder)


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
        """Fine-tune through a pattern; optionally with the masked-LM loss of unlabelled texts."""
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
        """Fine-tune a plain classifier."""
        return finetune("classify", self.bundle, few, None, self.arguments(len(few), seed, options=ClassifyOptions()))

    def arguments(
        self, examples: int, seed: int, *, options: Struct | None, steps: int | None = None
    ) -> FineTuneArguments:
        """Arguments for `steps` steps over `examples` examples."""
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
