"""The passages of a query in the order of their relevance, by a fine-tuned reranker.

rank_passages(bundle, "Where does a river end?", ["The bank is steep.", "A river ends in the sea."], options)
"""

from __future__ import annotations

from collections.abc import Sequence

from larvatus.core.errors import UsageError
from larvatus.core.tables import ResultList
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.predict import InputPlace, PredictOptions, TaskPredictor
from larvatus.tasks.registry import is_finetuned, task_of
from larvatus.tasks.rerank.encode import RankedPassage, ScoredPassage, reranker_of
from larvatus.tasks.rerank.task import RerankTask


def check_reranker(bundle: Bundle) -> None:
    """Refuse a model that was not fine-tuned to rerank."""
    task = task_of(bundle).name if is_finetuned(bundle) else "no task"
    if task != RerankTask.name:
        raise UsageError(
            f"{bundle.path} is a model for {task}, and reranking needs one for {RerankTask.name}; name another, or "
            "train one with larvatus finetune rerank"
        )
    reranker_of(bundle.network, str(bundle.path))


def score_passages(
    bundle: Bundle, query: str, passages: Sequence[str], options: PredictOptions, *, device: str
) -> list[ScoredPassage]:
    """The relevance of each passage, in the order in which they were given."""
    check_reranker(bundle)
    if isinstance(passages, str):
        raise UsageError("passages are a list of texts, not one text: [passage]")
    predictor = TaskPredictor(bundle, options, device)
    places = (InputPlace("passage", number) for number in range(1, len(passages) + 1))
    examples = [predictor.task.example((query, text), place) for text, place in zip(passages, places, strict=True)]
    predicted = (answer.found for answer in predictor.answers(examples))
    return [scored for scored in predicted if isinstance(scored, ScoredPassage)]


def rank_passages(
    bundle: Bundle,
    query: str,
    passages: Sequence[str],
    options: PredictOptions,
    *,
    device: str,
    top: int | None = None,
) -> ResultList[RankedPassage]:
    """The `top` passages, the most relevant first; of equal scores, in the order in which they were given."""
    if top is not None and top < 1:
        raise UsageError(f"top is 1 or more, not {top}")
    scored = score_passages(bundle, query, passages, options, device=device)
    order = sorted(range(len(scored)), key=lambda index: -scored[index].score)[:top]
    return ResultList(
        RankedPassage(
            rank=rank,
            index=index,
            query=query,
            passage=scored[index].passage,
            score=scored[index].score,
            coverage=scored[index].coverage,
        )
        for rank, index in enumerate(order, start=1)
    )
