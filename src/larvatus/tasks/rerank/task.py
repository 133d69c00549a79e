"""Reranking: score passages for a query, with a model that reads both together; and hard negatives for it.

    larvatus finetune rerank --train wikiqa.tsv --loss softmax --mine 4 --out runs/rerank
    larvatus predict runs/rerank "Where does a river end?" --pair "A river ends in the sea."
    larvatus search "Where does a river end?" --index index --rerank runs/rerank

A reranker orders what a first search gives, so it learns from passages that a search confuses with the relevant ones
(Karpukhin et al. 2020, *Dense Passage Retrieval*; Gao, Dai & Callan 2021, *Rethink training of BERT rerankers*). With
`--mine`, all passages of the data are ranked by the cosine of sentence vectors for each query with relevant passages,
and the nearest become examples with label 0. The margin below the relevant passages, and what is never a negative, are
those of `finetune embed --mine` (`tasks/embed/mining.py`); passages that the query has a label for are left as they
are. Validation examples get mined negatives, among their own passages, only if they have nothing to rank without them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import CountOrNone, DropoutRate
from larvatus.core.settings import Flag
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, Row
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import TextFormat
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads.head import Dense
from larvatus.models.heads.pooling import resolve_pool
from larvatus.models.heads.sequence_score import RerankingConfig
from larvatus.models.objectives.ranking import AnyRankingLoss, BinaryCrossEntropy, ListNet, MeanSquared, Softmax
from larvatus.tasks.arguments import TaskArguments, head_settings, with_layer_mix
from larvatus.tasks.embed.mining import (
    MiningOptions,
    MiningProblem,
    load_teacher,
    nearest_negatives,
    places_alike,
    teacher_vectors,
)
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, TextOrPairInput, text_or_pair
from larvatus.tasks.rerank.encode import ScoredPassage, encode_relevance, pair_scores, reranker_of
from larvatus.tasks.rerank.evaluation import (
    METRICS,
    RelevanceEvaluation,
    RelevanceValidation,
    evaluate_relevance,
    refuse_uncounted,
)
from larvatus.tasks.rerank.reader import (
    RelevanceExample,
    RelevanceFiles,
    by_query,
    read_relevance,
    read_unlabelled_relevance,
)
from larvatus.tasks.results import coverages
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric

PACKAGED = "english"


def with_mined_negatives(
    train: Dataset[RelevanceExample], options: MiningOptions, scoring: ScoringOptions, say: Callable[[str], None]
) -> Dataset[RelevanceExample]:
    """The examples, and after those of each query its mined negatives."""
    problem, texts = queries_and_passages(train.examples)
    if not len(problem.anchors):
        raise DataError(f"{train.source}: no query has a relevant passage, which --mine needs; label some above 0")
    miner = load_teacher(options.mine_model or PACKAGED)
    folder = None if options.mined is None else Path(options.mined)
    say(f"mining: vectors of {len(texts):,} texts by {miner.path}")
    vectors = teacher_vectors(miner, texts, scoring, folder=folder, say=say)
    mined = nearest_negatives(vectors, problem, options)
    negatives = {
        texts[anchor]: [texts[number] for number in row.tolist() if number >= 0]
        for anchor, row in zip(problem.anchors.tolist(), mined, strict=True)
    }
    total, without = int((mined >= 0).sum()), sum(not passages for passages in negatives.values())
    if not total:
        raise DataError(
            f"{train.source}: no passage is a hard negative of another query; give more queries, or a smaller "
            "--mine-margin"
        )
    rest = f"; {without:,} have none" if without else ""
    say(f"mining: {total:,} hard negatives of {len(negatives):,} queries{rest}")
    examples: list[RelevanceExample] = []
    for query, rows in by_query(train).items():
        added = negatives.get(query, [])
        examples += rows
        examples += [dataclasses.replace(rows[0], passage=passage, grade=0.0) for passage in added]
    return dataclasses.replace(train, examples=tuple(examples))


def rankable(examples: Sequence[RelevanceExample]) -> bool:
    """Whether a query has passages of different relevance, so that there is an order to learn or to measure."""
    return any(len({row.grade for row in rows}) > 1 for rows in by_query(examples).values())


def queries_and_passages(examples: Sequence[RelevanceExample]) -> tuple[MiningProblem, list[str]]:
    """The queries that have a relevant passage, as anchors, all passages as candidates, and the texts by number."""
    numbers: dict[str, int] = {}
    labelled: dict[int, list[int]] = {}
    relevant: dict[int, list[int]] = {}
    for example in examples:
        query, passage = (numbers.setdefault(text, len(numbers)) for text in (example.query, example.passage))
        labelled.setdefault(query, [query]).append(passage)
        if example.grade:
            relevant.setdefault(query, []).append(passage)
    texts, anchors = list(numbers), list(relevant)
    candidates = list(dict.fromkeys(numbers[example.passage] for example in examples))
    excluded = places_alike([labelled[query] for query in anchors], candidates, texts, {})
    return (
        MiningProblem(np.array(anchors, np.int64), np.array(candidates, np.int64), list(relevant.values()), excluded),
        texts,
    )


# The task.

LossName = Literal["binary-cross-entropy", "mean-squared", "softmax", "listnet"]
LOSSES: dict[LossName, AnyRankingLoss] = {
    "binary-cross-entropy": BinaryCrossEntropy(),
    "mean-squared": MeanSquared(),
    "softmax": Softmax(),
    "listnet": ListNet(),
}


class RerankOptions(MiningOptions):
    """Options of a reranker; None uses the model's default, or that of the labels."""

    mine: CountOrNone = 0
    """Hard negatives to mine for each query, among the passages of all queries; 0 for none."""
    mine_model: Annotated[str | None, Flag(metavar="MODEL")] = None
    """Model whose sentence vectors are compared; default: the packaged English model."""
    loss: LossName | None = None
    """Loss to minimise; default: binary-cross-entropy, or mean-squared for labels above 1."""
    pool: Literal["cls", "mean"] | None = None
    """What represents a query with a passage: cls, or the mean of its tokens; default: as its family has it."""
    dense: Dense | None = None
    """Layer before the score; none: one linear layer only; default: as the model's family has it."""
    dropout: DropoutRate | None = None
    """Dropout before the score; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


class RerankTask(Task[RelevanceExample, ScoredPassage, RerankOptions]):
    name, title, models = "rerank", "Score passages for a query.", "rerankers"
    Options, Head, Reading, Inputs = RerankOptions, RerankingConfig, RelevanceFiles, TextOrPairInput
    served = False
    joins = False
    card = CardTerms(
        "scores the relevance of a passage to a query",
        "text-ranking",
        "AutoModelForSequenceClassification",
        '("A query.", "A passage.")',
        '"A query." --pair "A passage."',
        also='`sentence-transformers` loads it with the same scores: `CrossEncoder("{name}")`.',
    )
    as_tuples = (("query", "passage", "label"),)

    def read_files(
        self, source: Paths, files: RelevanceFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[RelevanceExample]:
        return read_relevance(source, files, problems=problems)

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        return "query" in columns and bool({"passage", "passages", "positives", "pos", "docs"} & set(columns))

    def prepare(
        self,
        bundle: Bundle,
        train: Dataset[RelevanceExample],
        dev: Dataset[RelevanceExample] | None,
        args: TaskArguments,
    ) -> TaskData:
        options = self.options(args)
        if options.mine:
            train = with_mined_negatives(train, options, args.scoring, args.say)
            if dev and not rankable(dev.examples):
                args.say(f"mining: {dev.source} has no query with passages of different relevance to validate with")
                dev = with_mined_negatives(dev, replace(options, mined=None), args.scoring, args.say)
        head, windows = self.head(bundle, train, args), args.windows(bundle)
        listwise = head.loss.listwise
        rows = _comparable(train, args) if listwise else train.examples
        validation = None
        if dev:
            metric = check_metric(args.metric, METRICS)
            data = encode_relevance(bundle, dev.examples, windows, listwise=True)
            refuse_uncounted(data, dev.source)
            validation = RelevanceValidation(data, metric)
        encoded = encode_relevance(bundle, rows, windows, listwise=listwise)
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def head(self, bundle: Bundle, train: Dataset[RelevanceExample], args: TaskArguments) -> RerankingConfig:
        """The head that labels and options need."""
        options = with_layer_mix(self.options(args), bundle)
        loss = choose_loss(train, options.loss)
        settings = head_settings(options, default_head_settings(bundle, "reranking"))
        config = RerankingConfig(
            mix=bool(options.mix), loss=loss, activation="sigmoid" if loss.sigmoid else "none", **settings
        )
        relevant = sum(bool(example.grade) for example in train)
        queries, pairs = len(by_query(train)), len(train)
        args.say(f"queries: {queries:,}, {pairs / queries:.1f} passages each, {relevant / pairs:.0%} relevant")
        args.say(f"loss: {loss.__struct_config__.tag}")
        return msgspec.structs.replace(config, pool=resolve_pool(bundle.tokenizer.template, config.pool))

    def is_linear(self, config: RerankingConfig) -> bool:
        return config.dense == "none" and not config.mix

    def example(self, given: Input, place: Place) -> RelevanceExample:
        plain = text_or_pair(given, place)
        if plain.pair is None:
            raise UsageError(f"{place} is one text; a reranker reads a query with a passage: (query, passage), --pair")
        for role, text in (("query", plain.text), ("passage", plain.pair)):
            refuse_surrogates(text, f"{place}: the {role}")
            if not text.strip():
                raise DataError(f"{place}: the {role} is empty; leave it out")
        return RelevanceExample(plain.text, plain.pair, None, place)

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[RelevanceExample]:
        return read_unlabelled_relevance(name, columns, format, say)

    def predict(
        self, bundle: Bundle, examples: Sequence[RelevanceExample], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[ScoredPassage]:
        data = encode_relevance(bundle, examples, options.windows(bundle), listwise=False)
        scores = reranker_of(bundle.network).shown(pair_scores(bundle.network, data.sequences, scoring))
        rows = zip(examples, scores.tolist(), coverages(data.sequences), strict=True)
        return [
            ScoredPassage(query=example.query, passage=example.passage, score=score, coverage=coverage)
            for example, score, coverage in rows
        ]

    def evaluate(
        self, bundle: Bundle, data: Dataset[RelevanceExample], options: EvaluationOptions
    ) -> RelevanceEvaluation:
        return evaluate_relevance(bundle, data, options)


def choose_loss(train: Dataset[RelevanceExample], requested: LossName | None) -> AnyRankingLoss:
    """The loss as requested, or by the labels; labels that it cannot learn from are refused."""
    grades = {example.grade or 0.0 for example in train}
    if len(grades) < 2:
        (only,) = grades
        fix = "give some passages that are relevant"
        if only != 0:
            fix = "give some that are not relevant, with label 0, or find some with --mine 4"
        raise DataError(f"{train.source}: all labels are {only:g}, so there is nothing to learn; {fix}")
    name: LossName = requested or ("binary-cross-entropy" if max(grades) <= 1 else "mean-squared")
    if name == "binary-cross-entropy" and max(grades) > 1:
        raise UsageError(
            f"binary-cross-entropy learns labels between 0 and 1, and {train.source} has {max(grades):g}; give --loss "
            "mean-squared, softmax or listnet"
        )
    return LOSSES[name]


def _comparable(train: Dataset[RelevanceExample], args: TaskArguments) -> list[RelevanceExample]:
    """The examples of queries whose candidates differ in relevance; the others teach a listwise loss nothing."""
    lists = by_query(train)
    kept = [rows for rows in lists.values() if len({row.grade for row in rows}) > 1]
    if not kept:
        raise DataError(
            f"{train.source}: no query has both a relevant passage and another one, which a listwise loss compares; "
            "give each query both, or --loss binary-cross-entropy"
        )
    if len(kept) < len(lists):
        args.say(
            f"{len(lists) - len(kept):,} of {len(lists):,} queries are left out: a listwise loss compares the passages "
            "of a query, and theirs are all equally relevant"
        )
    return [row for rows in kept for row in rows]
