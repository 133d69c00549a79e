"""Classify texts and pairs through a pattern with a blank (PET, Schick & Schütze 2021), as a task.

    larvatus finetune prompt --model DIR --train few.tsv --pattern "{text} It was {blank}." --verbaliser pos=great \\
        --verbaliser neg=terrible --out runs/few

It learns by cross-entropy over the scores of the labels' words, and is evaluated and predicts as classifiers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from larvatus.core.errors import UsageError
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.arguments import TaskArguments, label_balance, report_unknown
from larvatus.tasks.classify.classify import (
    LabelledTexts,
    label_array,
    predictions,
    probabilities,
    texts_of,
    unknown_texts,
)
from larvatus.tasks.classify.evaluation import TextEvaluation, evaluate_scores
from larvatus.tasks.classify.task import TextTask, TextValidation, text_metric
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions, readable
from larvatus.tasks.prompt.pattern import PromptOptions, Prompts, encode_prompts
from larvatus.tasks.prompt.prompted import check_trains, prompt_config, prompt_of, prompt_scores
from larvatus.tasks.results import Classified
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, TaskData


class PromptTask(TextTask[PromptOptions]):
    name, models = "prompt", "prompted classifiers"
    title = "Classify texts or pairs through a pattern with a blank (PET)."
    Options, Head = PromptOptions, VerbaliserConfig
    joins = False
    card = CardTerms("classifies texts through a pattern with a blank", "text-classification", None)

    def prepare(
        self, bundle: Bundle, train: Dataset[TextExample], dev: Dataset[TextExample] | None, args: TaskArguments
    ) -> TaskData:
        if train.kind not in (None, "multi-class"):
            raise UsageError(f"a word at a blank is a class, but this is {train.kind}; use finetune classify")
        check_trains(bundle)
        options, windows = self.options(args), args.windows(bundle)
        pair = train.examples[0].pair is not None
        config = prompt_config(
            bundle, pattern=options.pattern, words=options.verbaliser, labels=train.label_names(), pair=pair
        )
        if config.blanks > 1 and args.trainable == "head":
            raise UsageError(
                "frozen vectors are kept of one blank, but a word has several tokens; train all, bias or lora, or give "
                "words of one token"
            )
        args.say(label_balance(train.labels(), "classes", of=len(train)))
        head = msgspec.structs.replace(config, in_turn=False)
        prompts, encoded = labelled_prompts(bundle, train.examples, head, windows)
        if line := prompts.describe():
            args.say(line)
        validation = None
        if dev:
            counts = [train.labels()[label] for label in head.labels]
            _, data = labelled_prompts(bundle, dev.examples, head, windows)
            report_unknown(args, dev.source, data.unknown, ("texts", "labelled with classes"))
            validation = TextValidation(data, head, text_metric(head, counts, args.metric))
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Classified]:
        texts = [readable(example) for example in examples]
        limit = options.windows(bundle).limit
        head = prompt_of(bundle)
        prompts = encode_prompts(bundle.tokenizer, head.config, texts, limit=limit)
        scores = prompt_scores(bundle, texts, limit=limit, scoring=scoring)
        return predictions(head.config, texts_of(texts), prompts.sequences, probabilities(head, scores))

    def evaluate(self, bundle: Bundle, data: Dataset[TextExample], options: EvaluationOptions) -> TextEvaluation:
        config = prompt_of(bundle).config
        windows = options.windows(bundle)
        _, encoded = labelled_prompts(bundle, data.examples, config, windows)
        encoded.unknown.check(strict=options.strict)
        bundle.network.to(options.scoring.device)
        scores = prompt_scores(bundle, data.examples, limit=windows.limit, scoring=options.scoring)
        return evaluate_scores(bundle, data, encoded, scores, options)


def labelled_prompts(
    bundle: Bundle, examples: Sequence[TextExample], config: VerbaliserConfig, windows: WindowOptions
) -> tuple[Prompts, LabelledTexts]:
    """Texts in their pattern, with the target of each."""
    prompts = encode_prompts(bundle.tokenizer, config, examples, limit=windows.limit)
    labels = np.asarray(label_array(examples, config), np.int64)
    return prompts, LabelledTexts(prompts.sequences, labels, unknown_texts(examples, config))
