"""Sentence vectors as a task: `larvatus finetune embed`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, Row
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.models.heads.embedding import EmbeddingConfig, LateInteractionConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.tasks.arguments import TaskArguments
from larvatus.tasks.embed.compared import compared_texts, reading_of
from larvatus.tasks.embed.encode import EncodedSentences, EncodeOptions, embedder_of, encode_sentences
from larvatus.tasks.embed.evaluation import (
    METRICS,
    SentenceEvaluation,
    SentenceValidation,
    evaluate_sentences,
    refuse_few,
)
from larvatus.tasks.embed.examples import Rows, SentenceExample, rows_of
from larvatus.tasks.embed.mining import (
    TeacherVectors,
    anchors_and_candidates,
    as_pairs,
    load_teacher,
    nearest_negatives,
    teacher_vectors,
    with_negatives,
)
from larvatus.tasks.embed.options import (
    FITTING,
    SentenceOptions,
    choose_loss,
    describe_loss,
    text_head,
    with_sparse_start,
)
from larvatus.tasks.embed.reader import SentenceFiles, read_sentences
from larvatus.tasks.embed.results import EmbeddedText, SparseText, TokenVectorText, embedded_text
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, readable, text_or_pair
from larvatus.tasks.results import Coverage
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric


class EmbedTask(Task[SentenceExample, EmbeddedText | TokenVectorText | SparseText, SentenceOptions]):
    name, title, models = "embed", "Teach a model to embed texts.", "sentence encoders"
    Options, Head, Reading = SentenceOptions, EmbeddingConfig, SentenceFiles
    OtherHeads = (LateInteractionConfig, SparseConfig)
    served = False
    keeps_lm_loss = False
    begins_with_adapter = True
    joins = False
    card = CardTerms(
        "gives a vector for a text",
        "sentence-similarity",
        "AutoModel",
        also='`sentence-transformers` loads it with its pooling: `SentenceTransformer("{name}")`.',
    )
    as_tuples = (("text",), ("anchor", "positive"), ("anchor", "positive", "negative"))

    def read_files(
        self, source: Paths, files: SentenceFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[SentenceExample]:
        return read_sentences(source, files, problems=problems)

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        return {"anchor", "positive"} <= set(columns)

    def initial_model(self, bundle: Bundle, train: Dataset[SentenceExample], args: TaskArguments) -> Bundle:
        """With its sentence adapter merged, if it has one, and for sparse vectors with logits that begin sparse."""
        kind = self.options(args).vectors
        if kind == "sparse" and self.head_in(bundle) is None and "masked-lm" in bundle.network.objectives:
            bundle, lower = with_sparse_start(bundle, train.examples, args.scoring)
            if lower:
                args.say(f"masked-LM bias lowered by {lower:.2f}, so that training begins with sparse vectors")
        if bundle.adapter is None or kind in ("late", "sparse"):
            return bundle
        args.say("training begins with the model's sentence adapter, merged into its weights")
        return sentence_bundle(bundle)

    def prepare(
        self,
        bundle: Bundle,
        train: Dataset[SentenceExample],
        dev: Dataset[SentenceExample] | None,
        args: TaskArguments,
    ) -> TaskData:
        options = self.options(args)
        train = self._mined(bundle, train, args) if options.mine else train
        rows = rows_of(train)
        teacher = None if options.teacher is None else load_teacher(options.teacher)
        width = 0 if teacher is None else embedder_of(teacher.network).size_of_vector
        head = text_head(bundle, rows, options, teacher=width)
        if args.trainable == "head" and head.vector_kind != "dense":
            raise UsageError(
                "late and sparse vectors need more than a head to be trained; give --trained all, last2 or lora"
            )
        if args.trainable == "head" and not getattr(head, "projections", ()):
            raise UsageError("a sentence encoder without a linear layer has no head to train; give --dense SIZE")
        args.say(f"loss: {describe_loss(head)}, from {rows}")
        reading = EncodeOptions(
            pool=getattr(head, "pool", "mean"),
            windows=args.windows(bundle),
            twice=rows == "texts" and head.loss.contrasts,
            contrasts=head.loss.contrasts,
        )
        encoded = self._with_teacher(encode_sentences(bundle, train.examples, reading), train, teacher, args)
        if len(encoded) < 2:
            what = "no two texts of one group" if rows == "groups" else f"{len(encoded)} example only"
            raise DataError(f"{train.source}: {what}; vectors learn from two examples or more")
        validation = self._validation(bundle, rows, dev, teacher, reading, args) if dev else None
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def _mined(self, bundle: Bundle, train: Dataset[SentenceExample], args: TaskArguments) -> Dataset[SentenceExample]:
        """The pairs with hard negatives among their positives."""
        options, rows = self.options(args), rows_of(train)
        if rows not in ("pairs", "groups"):
            raise UsageError(f"--mine finds negatives for pairs and groups, and {train.source} holds {rows}")
        pairs = as_pairs(train)
        problem, texts = anchors_and_candidates(pairs)
        miner = load_teacher(options.mine_model or str(bundle.path))
        folder = None if options.mined is None else Path(options.mined)
        args.say(f"mining: vectors of {len(texts):,} texts by {miner.path}")
        vectors = teacher_vectors(miner, texts, args.scoring, folder=folder, say=args.say)
        mined = nearest_negatives(vectors, problem, options)
        made = with_negatives(pairs, problem, texts, mined)
        some = [example for example in made if len(example.texts) > 2]
        if not some:
            raise DataError(
                f"{train.source}: no text is a hard negative of another; give more pairs, or a smaller --mine-margin"
            )
        without = len(made) - len(some)
        args.say(
            f"mining: {int((mined >= 0).sum()):,} hard negatives of {len(problem.anchors):,} anchors"
            + (f"; {without:,} of {len(made):,} pairs have none" if without else "")
        )
        kept = some if options.loss == "triplet" else made
        return dataclasses.replace(train, examples=tuple(kept))

    def _with_teacher(
        self, encoded: EncodedSentences, data: Dataset[SentenceExample], teacher: Bundle | None, args: TaskArguments
    ) -> EncodedSentences:
        """The examples with the teacher's vectors of their texts."""
        if teacher is None:
            return encoded
        texts = list(dict.fromkeys(text for example in data for text in example.texts))
        folder = self.options(args).teacher_vectors
        args.say(f"teacher: {len(texts):,} vectors of {embedder_of(teacher.network).size_of_vector} dimensions")
        kept = None if folder is None else Path(folder)
        vectors: TeacherVectors = teacher_vectors(teacher, texts, args.scoring, folder=kept, say=args.say)
        return dataclasses.replace(encoded, teacher=vectors)  # type: ignore[arg-type]  # indexed as an array

    def _validation(
        self,
        bundle: Bundle,
        trained: Rows,
        dev: Dataset[SentenceExample],
        teacher: Bundle | None,
        reading: EncodeOptions,
        args: TaskArguments,
    ) -> SentenceValidation:
        rows = rows_of(dev)
        if rows == "texts" and teacher is None:
            raise UsageError("plain texts cannot measure vectors; give --dev with scored pairs or pairs, or --no-dev")
        data = encode_sentences(bundle, dev.examples, dataclasses.replace(reading, twice=False, contrasts=False))
        refuse_few(data, dev)
        if rows == "texts":
            data = self._with_teacher_in_memory(data, dev, teacher, args)
        metric = check_metric(args.metric, METRICS[rows])
        fits = rows in FITTING[choose_loss(trained, self.options(args))] and (teacher is None or rows == "texts")
        return SentenceValidation(data, rows, metric, has_loss=fits)

    def _with_teacher_in_memory(
        self, data: EncodedSentences, dev: Dataset[SentenceExample], teacher: Bundle | None, args: TaskArguments
    ) -> EncodedSentences:
        assert teacher is not None
        texts = list(dict.fromkeys(text for example in dev for text in example.texts))
        return dataclasses.replace(data, teacher=np.asarray(teacher_vectors(teacher, texts, args.scoring)))

    def example(self, given: Input, place: Place) -> SentenceExample:
        plain = readable(text_or_pair(given, place))
        if plain.pair is not None:
            raise UsageError(f"{place} is a pair; a sentence encoder gives a vector for each text, so give both apart")
        return SentenceExample((plain.text,), "texts", place)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[EmbeddedText | TokenVectorText | SparseText]:
        texts = [
            example.texts[0] if isinstance(example, SentenceExample) else readable(example).text for example in examples
        ]
        rows = [SentenceExample((text,), "texts", given.place) for text, given in zip(texts, examples, strict=True)]
        head = embedder_of(bundle.network)
        windows = WindowOptions.of(bundle, length=options.length, truncate=options.truncate, overlap=options.overlap)
        data = encode_sentences(bundle, rows, reading_of(head, windows))
        vectors, read = compared_texts(bundle.network, data, scoring), data.sequences
        return [
            embedded_text(
                text,
                vectors,
                number,
                vocabulary=bundle.tokenizer,
                coverage=Coverage(
                    tokens=int(read.tokens[number]), read=int(read.read[number]), windows=int(read.parts[number])
                ),
            )
            for text, number in zip(texts, data.texts.tolist(), strict=True)
        ]

    def evaluate(
        self,
        bundle: Bundle,
        data: Dataset[SentenceExample],
        options: EvaluationOptions = EvaluationOptions(),
    ) -> SentenceEvaluation:
        return evaluate_sentences(bundle, data, options)
