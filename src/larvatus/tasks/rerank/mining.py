"""Hard negatives of queries: passages of other queries that are near to a query and not relevant to it.

    train = with_mined_negatives(train, RerankOptions(mine=4), scoring, say)

A reranker orders what a first search gives, so it learns from passages that a search confuses with the relevant ones
(Karpukhin et al. 2020, *Dense Passage Retrieval*; Gao, Dai & Callan 2021, *Rethink training of BERT rerankers*). For a
query with relevant passages, all passages of the data are ranked by the cosine of sentence vectors, and the nearest
become examples with label 0. The margin below the relevant passages, and what is never a negative, are those of
`finetune embed --mine` (`tasks/embed/mining.py`); passages that the query has a label for are left as they are.
Validation examples get mined negatives, among their own passages, only if they have nothing to rank without them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset
from larvatus.tasks.embed.mining import MiningOptions, MiningProblem, nearest_negatives, places_alike
from larvatus.tasks.embed.teacher import load_teacher, teacher_vectors
from larvatus.tasks.rerank.reader import RelevanceExample, by_query
from larvatus.tasks.scoring import ScoringOptions

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
