"""Text to text: the encoder reads a text, the decoder writes the answer, for any task (T5).

    larvatus finetune write --model runs/t5 --train train.tsv --prefix "sst2 sentence:" --label-word 0=negative \\
        --label-word 1=positive --out runs/sst2

It learns by the loss of pretraining, of the tokens that are to be written, and answers by writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, TextExample, in_order
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import TextFormat
from larvatus.models.bundle.directory import Bundle
from larvatus.models.generation.generator import CanGenerate
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, TextOrPairInput, text_or_pair
from larvatus.tasks.results import Coverage
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.write.encode import Written, decode_targets, encode_pairs, encode_sources, write_texts
from larvatus.tasks.write.evaluation import (
    NO_HEAD,
    WritingEvaluation,
    WritingValidation,
    evaluate_writing,
    gold_targets,
    unknown_classes,
    writer_of,
    writing_metric,
)
from larvatus.tasks.write.reader import WritingExample, WritingFiles, is_table, read_pairs, read_unlabelled_pairs


def parse_label_words(words: Sequence[str]) -> dict[str, Any]:
    """Label words from the command line: ``0=negative``, once for each label."""
    by_label: dict[str, str] = {}
    for given in words:
        refuse_surrogates(given, "--label-word")
        label, equals, word = given.partition("=")
        if not (label and equals and word.strip()):
            raise UsageError(f"--label-word {given:.60} is not LABEL=WORD, such as 0=negative")
        if label in by_label:
            raise UsageError(f"--label-word gives {label} two words; give one")
        by_label[label] = word
    return {"label_words": by_label}


class WriteOptions(Settings):
    """Options of text to text."""

    prefix: Annotated[str, Flag(metavar="TEXT")] = ""
    """Prefix of every text, such as "sst2 sentence:", which tells the model what to do."""
    label_words: Annotated[Mapping[str, str], Flag("--label-word", metavar="LABEL=WORD", words=parse_label_words)] = {}
    """Text to generate for a label of the data, such as 0=negative; repeatable. Default: the label itself."""
    max_tokens: Count | None = None
    """Tokens to write at most; default: one and a half times the longest target in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_surrogates(self.prefix, "the prefix")
        words = list(self.label_words.values())
        for word in words:
            if words.count(word) > 1:
                raise UsageError(
                    f"two labels have the word {word!r}, and could not be distinguished; give each its own"
                )


PARTS = ("sentence1", "sentence2")
"""Default names of the texts of a pair."""


class WriteTask(Task[WritingExample, Written, WriteOptions]):
    name, models = "write", "models that write"
    title = "Write a text for a text: any task, with an encoder-decoder (T5)."
    Options, Head, Reading, Inputs = WriteOptions, TextToTextConfig, WritingFiles, TextOrPairInput
    defaults = Defaults(3e-4, 1.0, 2_000)
    joins = False
    card = CardTerms("writes a text for a text", "text2text-generation", "AutoModelForSeq2SeqLM")
    shows = frozenset({"beams"})
    as_tuples = (("text", "target"), ("sentence1", "sentence2", "target"))

    def read_files(
        self, source: Paths, files: WritingFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[WritingExample]:
        return read_pairs(source, files, problems=problems)

    def prepare(
        self, bundle: Bundle, train: Dataset[WritingExample], dev: Dataset[WritingExample] | None, args: TaskArguments
    ) -> TaskData:
        head, windows = self._head(bundle, train, args), args.windows(bundle)
        pairs = encode_pairs(bundle, train.examples, head, windows)
        args.say(f"reads {in_quotes(head, train.examples[0])}, writes up to {head.most:,} tokens")
        if pairs.cut:
            args.say(f"{pairs.cut:,} of {len(pairs):,} texts are cut where the model's reach ends")
        other = [e for e in train if " ".join(e.targets[0].split()) != decode_targets(bundle.tokenizer, e.targets[0])]
        if other and not head.classes:
            args.say(
                f"{len(other):,} of {len(train):,} targets cannot be written exactly, "
                f"{other[0].place} among them: the vocabulary lacks characters, capitals or spaces"
            )
        validation = self._validation(bundle, dev, head, args) if dev else None
        return TaskData(head=head, encoded=pairs, validation=validation, train=train, dev=dev)

    def _head(self, bundle: Bundle, train: Dataset[WritingExample], args: TaskArguments) -> TextToTextConfig:
        check_writes(bundle)
        if args.trainable == "head":
            raise UsageError(NO_HEAD)
        options = self.options(args)
        first = train.examples[0]
        config = TextToTextConfig(
            prefix=options.prefix.strip(),
            parts=() if first.pair is None else first.parts or PARTS,
            words=tuple(options.label_words.items()),
            classes=_classes(bundle, train, options),
            most=bundle.model.max_positions,
        )
        longest = int(encode_pairs(bundle, train.examples, config, args.windows(bundle)).lengths.max())
        most = _most(options.max_tokens, longest, bundle.model.max_positions)
        if line := label_balance(train.labels(), "classes", of=len(train)):
            args.say(line)
        return msgspec.structs.replace(config, most=most)

    def _validation(
        self, bundle: Bundle, dev: Dataset[WritingExample], config: TextToTextConfig, args: TaskArguments
    ) -> WritingValidation:
        golds = gold_targets(dev, config)
        report_unknown(args, dev.source, unknown_classes(dev, golds, config), ("texts", "labelled with classes"))
        pairs = encode_pairs(bundle, dev.examples, config, args.windows(bundle))
        long = int((pairs.lengths > config.most).sum())
        if long:
            args.say(f"{dev.source}: {long:,} targets are longer than the {config.most:,} tokens that are written")
        return WritingValidation(pairs, golds, bundle.tokenizer, config, writing_metric(config.classes, args.metric))

    def example(self, given: Input, place: Place) -> WritingExample:
        return _unlabelled(text_or_pair(given, place))

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[WritingExample]:
        if is_table(name, format):
            return read_unlabelled_pairs(name, columns, format, say)
        return map(_unlabelled, super().read_plain(name, columns, format, say))

    def predict(
        self, bundle: Bundle, examples: Sequence[WritingExample], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Written]:
        config = writer_of(bundle)
        windows = options.windows(bundle)
        sequences = encode_sources(bundle, examples, config, windows)
        answers = write_texts(
            bundle.network,
            bundle.tokenizer,
            sequences,
            most=config.most,
            beams=options.beams or 1,
            scoring=scoring,
        )
        return [
            Written(
                text=example.text,
                pair=example.pair,
                written=answer.text,
                log_probability=answer.log_probability,
                ended=answer.ended,
                coverage=Coverage(tokens=int(sequences.tokens[n]), read=int(sequences.read[n]), windows=1),
            )
            for n, (example, answer) in enumerate(zip(examples, answers, strict=True))
        ]

    def evaluate(self, bundle: Bundle, data: Dataset[WritingExample], options: EvaluationOptions) -> WritingEvaluation:
        return evaluate_writing(bundle, data, options)


def check_writes(bundle: Bundle) -> None:
    """Refuse a model without a decoder next to its encoder."""
    encoder = bundle.network.encoder
    if not isinstance(encoder, CanGenerate):
        raise UsageError(
            f"{bundle.path} reads texts and writes none; text to text needs an encoder with a decoder, a model of the "
            "recipe t5"
        )
    if not encoder.closes_prompts:
        raise UsageError(
            f"{bundle.path} continues texts from left to right, and is not fine-tuned from text to text here; take "
            "a model of the recipe t5, or give this one a head: larvatus finetune classify"
        )


def in_quotes(config: TextToTextConfig, example: WritingExample) -> str:
    """How a text is read, its beginning in quotes."""
    read = " ".join(config.read_as(example.text, example.pair)[:300].split())
    return repr(read if len(read) <= 80 else read[:79] + "…")


def _unlabelled(example: TextExample) -> WritingExample:
    return WritingExample(example.text, example.pair, (), example.place, example.id)


def _most(asked: int | None, longest: int, reach: int) -> int:
    """Most tokens to generate: as given, or one and a half times those of the longest target."""
    if asked is not None and asked > reach:
        raise UsageError(f"max_tokens = {asked:,} is more than the {reach:,} that the model writes; give {reach:,}")
    return int(min(reach, np.ceil(1.5 * longest))) if asked is None else asked


def _classes(bundle: Bundle, train: Dataset[WritingExample], options: WriteOptions) -> tuple[str, ...]:
    """The texts of the labels, if targets are labels: few, or with given words."""
    words = options.label_words
    labels = train.label_names()
    if words:
        labels = labels or in_order({example.targets[0] for example in train})
        missing = [label for label in labels if label not in words and label not in words.values()]
        if missing:
            raise UsageError(f"the label {missing[0]} has no word; give it one: --label-word {missing[0]}=WORD")
    classes = tuple(dict.fromkeys(words.get(label, label) for label in labels))
    for name in classes:
        if (back := decode_targets(bundle.tokenizer, name)) != name:
            raise UsageError(
                f"the vocabulary writes the label {name!r} as {back!r}; give it a word that it can write: --label-word "
                f"{name}=WORD"
            )
    return classes
