"""Scores of vectors, by what they are used for, and the unit vectors of texts that are scored.

    vectors = embed_distinct(lv.load(), ["the river", "the town", "the river"])       # two texts go through the model
    similarity_metrics(vectors.cosines(first, second), scores)       # spearman, pearson (Cer et al. 2017)

Every text is embedded once, however often a set names it, with the model's own pooling (`inference/vectors/
pooling.py`). TF-IDF is the baseline that sees words only: an encoder that is not better has learned nothing that the
set tests.

**Retrieval** by one vector per document: every document is compared with every query, and ranked as trec_eval ranks.
This measures the vectors; `larvatus search evaluate` measures a search, with passages, stored vectors, graphs, fusion
and reranking.

**Pairs**: cosines against scores of people (STS), and against yes or no (pair classification). Spearman's ρ depends
only on the order of the cosines, Pearson's r on proportions. Both have bootstrap intervals over pairs.

**Classification** from frozen vectors: logistic regression of `shots` examples of every class, in several draws, each
scored on all test examples. Vectors are centred and scaled by one number, so that the mean square length of a draw is 1
and the penalty weighs the same for all models (sparse ones keep their length, which is 1). The interval of the accuracy
has both factors resampled, draws and test examples (`metrics/intervals.py`, Owen 2007), so few draws make it wide.

**Clustering**: mini-batch k-means (Sculley 2010) of vectors into as many clusters as there are labels, and V-measure,
as in MTEB (Muennighoff et al. 2023). k-means depends on where it starts: the score is the mean over several seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.data.labelled.retrieval_sets import RetrievalCollection
from larvatus.evaluation.retrieval import DEPTH
from larvatus.inference.search.lexical import LexicalIndex, write_lexical
from larvatus.metrics.classification import v_measure_interval
from larvatus.metrics.intervals import Interval, bootstrap, crossed_mean
from larvatus.metrics.ranking import average_precision_of_scores, best_accuracy, pearson, spearman, trec_order

AT_ONCE = 1_024
"""Texts between two reports of progress."""
BLOCK = 1 << 24
"""Similarities in memory."""
MODEL, TF_IDF, BM25 = "model", "TF-IDF", "BM25"
"""Names of systems in results."""


class Embeds(Protocol):
    """A model that gives vectors [n, D] of n texts."""

    def embed(self, texts: Sequence[str]) -> Any: ...


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Vectors of length 1 by text; a text without a vector, such as one without known words, has zeros."""

    rows: Mapping[str, int]
    matrix: Any
    """[U, D] float32, or a sparse matrix of SciPy."""

    def of(self, texts: Sequence[str]) -> Any:
        """[n, D] vectors of texts, dense or sparse."""
        return self.matrix[[self.rows[text] for text in texts]]

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Doubles:
        """[n] cosine of each text with the text at the same place."""
        a, b = self.of(first), self.of(second)
        products = a.multiply(b) if hasattr(a, "multiply") else a.astype(np.float64) * b
        return np.asarray(products.sum(1), np.float64).reshape(-1)

    def similarities(self, queries: Sequence[str], documents: Sequence[str]) -> Iterator[Floats]:
        """[documents] cosines of each query with all documents."""
        query_QD, document_ND = self.of(queries), self.of(documents)
        step = max(1, BLOCK // max(1, len(documents)))
        for begin in range(0, len(queries), step):
            block_QN = query_QD[begin : begin + step] @ document_ND.T
            yield from block_QN.toarray() if hasattr(block_QN, "toarray") else block_QN


def embed_distinct(
    model: Embeds, texts: Iterable[str], *, progress: Callable[[int], None] = lambda done: None
) -> VectorTable:
    """Unit vectors of a model, each distinct text once; `progress` gets how many are computed."""
    distinct = sorted(dict.fromkeys(texts), key=len, reverse=True)
    if not distinct:
        raise DataError("there are no texts to embed; check the files")
    parts = []
    for begin in range(0, len(distinct), AT_ONCE):
        parts.append(np.asarray(model.embed(distinct[begin : begin + AT_ONCE]), np.float32))
        progress(min(begin + AT_ONCE, len(distinct)))
    matrix_UD = np.concatenate(parts)
    bad = np.flatnonzero(~np.isfinite(matrix_UD).all(1))
    if len(bad):
        raise DataError(f"the vector of {distinct[bad[0]]!r:.80} is not finite; the model's weights may be damaged")
    lengths = np.linalg.norm(matrix_UD, axis=1, keepdims=True)
    return VectorTable(_numbered(distinct), matrix_UD / np.maximum(lengths, 1e-12))


def tf_idf(texts: Iterable[str]) -> VectorTable:
    """TF-IDF of words, with the document frequencies of the texts themselves; no labels are seen."""
    distinct = list(dict.fromkeys(texts))
    words = scikit_learn("feature_extraction.text").TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    try:
        matrix = words.fit_transform(distinct)
    except ValueError as fault:  # an empty vocabulary
        raise DataError(f"TF-IDF finds no words in the texts ({fault}); leave baselines out") from fault
    return VectorTable(_numbered(distinct), matrix.tocsr())


def scikit_learn(module: str) -> Any:
    """A module of scikit-learn, which classification, clustering and TF-IDF need."""
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as fault:
        raise UsageError(
            "classification, clustering and the TF-IDF baseline need scikit-learn, which is not installed; run: "
            'pip install "larvatus[maps]"'
        ) from fault


def _numbered(texts: Sequence[str]) -> dict[str, int]:
    return {text: row for row, text in enumerate(texts)}


# Scores.

Rankings = dict[str, list[str]]
"""Query to documents, best first."""
POSITIVE = {"1", "1.0", "true", "yes", "paraphrase", "duplicate", "match", "entailment"}
"""Labels of pairs that match, in small letters."""
PENALTY, STEPS = 1.0, 1_000
"""Inverse weight of the penalty (C of scikit-learn, its default and that of MTEB), and most steps of the optimiser."""
BATCH = 512
"""Documents of a step of k-means."""


def rank_by_vectors(vectors: VectorTable, collection: RetrievalCollection, *, depth: int = DEPTH) -> Rankings:
    """The `depth` documents of each judged query with the highest cosines."""
    queries = [collection.queries[query] for query in collection.judged]
    return _ranked(vectors.similarities(queries, list(collection.documents.values())), collection, depth)


def rank_by_words(collection: RetrievalCollection, *, depth: int = DEPTH) -> Rankings:
    """The same by BM25; documents that share no word with a query are not ranked."""
    with TemporaryDirectory() as folder:
        write_lexical(Path(folder), collection.documents.values())
        words = LexicalIndex.open(Path(folder), len(collection.documents))
        scores = (words.scores(collection.queries[query]) for query in collection.judged)
        return _ranked(scores, collection, depth, above=0.0)


def _ranked(
    scores: Iterable[Doubles | Floats], collection: RetrievalCollection, depth: int, *, above: float | None = None
) -> Rankings:
    ids = list(collection.documents)
    rankings: Rankings = {}
    for query, row in zip(collection.judged, scores, strict=True):
        places = trec_order(row, ids, depth)
        rankings[query] = [ids[place] for place in places if above is None or row[place] > above]
    return rankings


def similarity_metrics(cosines: Doubles, scores: npt.ArrayLike, *, samples: int = 1000) -> dict[str, Interval]:
    """Spearman and Pearson of cosines and scores."""
    wanted = np.asarray(scores, np.float64)
    if len(wanted) < 2 or (wanted == wanted[0]).all():
        raise DataError("a correlation needs two pairs or more, with different scores")
    return _over_pairs(cosines, wanted, {"spearman": spearman, "pearson": pearson}, samples)


def matching_metrics(cosines: Doubles, matches: npt.ArrayLike, *, samples: int = 1000) -> dict[str, Interval]:
    """Average precision of the pairs that match, and accuracy with the best threshold of these pairs."""
    truth = np.asarray(matches, np.float64)
    if len(np.unique(truth)) < 2:
        raise DataError("pair classification needs pairs that match and pairs that do not")
    metrics = {"average precision": average_precision_of_scores, "best accuracy": best_accuracy}
    return _over_pairs(cosines, truth, metrics, samples)


def matching_labels(labels: Sequence[Any]) -> Doubles:
    """1 for pairs that match, 0 for others, from two labels such as 0 and 1, no and yes.

    >>> matching_labels(["paraphrase", "not_paraphrase"]).tolist()
    [1.0, 0.0]
    """
    names = sorted({str(label) for label in labels})
    matching = [name for name in names if name.casefold() in POSITIVE]
    if len(names) != 2 or len(matching) != 1:
        shown = ", ".join(names[:5])
        raise DataError(
            f"the labels of pairs are {shown}; pair classification needs two, of which one is 1, true, yes, "
            "paraphrase, duplicate, match or entailment"
        )
    return np.array([float(str(label) == matching[0]) for label in labels])


def _over_pairs(
    cosines: Doubles, wanted: Doubles, metrics: Mapping[str, Callable[[Doubles, Doubles], float]], samples: int
) -> dict[str, Interval]:
    pairs = np.stack([cosines, wanted], axis=1)

    def of(metric: Callable[[Doubles, Doubles], float]) -> Interval:
        return bootstrap(pairs, lambda rows: metric(rows[:, 0], rows[:, 1]), of="rows", samples=samples)

    return {name: of(metric) for name, metric in metrics.items()}


@dataclass(frozen=True)
class LabelledSample:
    """Texts with a class each."""

    texts: Sequence[str]
    labels: Sequence[str]

    @classmethod
    def of(cls, data: Dataset[TextExample]) -> LabelledSample:
        """The texts of examples; pairs are refused."""
        for example in data:
            if example.pair is not None:
                raise UsageError(
                    f"{data.source} is read as pairs, but a class needs one text; name its columns (--text, --label)"
                )
        return cls([example.text for example in data], [str(example.label) for example in data])

    def at(self, places: Ints) -> LabelledSample:
        """Some of them."""
        return LabelledSample([self.texts[place] for place in places], [self.labels[place] for place in places])


def classification_metrics(
    vectors: VectorTable, draws: Sequence[LabelledSample], test: LabelledSample, *, samples: int = 1000
) -> dict[str, Interval]:
    """Accuracy over draws and test examples.

    Args:
        vectors: Vectors of all their texts.
        draws: Training examples of each draw.
        test: Test examples.
        samples: Samples of the bootstrap.
    """
    unknown = sorted(set(test.labels) - set(draws[0].labels))
    if unknown:
        raise DataError(f"the training examples have no class {unknown[0]!r:.60}, which test examples have; add some")
    vectors_ND, gold = vectors.of(test.texts), np.asarray(test.labels)
    right = np.stack([_predict(vectors.of(draw.texts), draw.labels, vectors_ND) == gold for draw in draws])
    return {"accuracy": crossed_mean(right, samples=samples)}


def sample_shots(labels: Sequence[str], *, shots: int, seed: int) -> Ints:
    """Places of `shots` examples of each class, at random without repetition; a smaller class is refused.

    >>> len(sample_shots(["a", "b", "a", "b", "a"], shots=2, seed=0))
    4
    """
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    if len(places) < 2:
        raise DataError("classification needs examples of two classes or more")
    small = min(places, key=lambda label: len(places[label]))
    if len(places[small]) < shots:
        raise DataError(f"class {small!r:.60} has {len(places[small])} training examples, fewer than shots: {shots}")
    sampled = [
        stream(seed, "shots of a class", 0, number).choice(places[label], shots, replace=False)
        for number, label in enumerate(sorted(places))
    ]
    return np.concatenate(sampled).astype(np.int64)


def _predict(vectors: Any, labels: Sequence[str], test: Any) -> Any:
    """Predictions for the test vectors."""
    if isinstance(vectors, np.ndarray):
        centre = vectors.mean(0)
        length = max(1e-12, float(np.sqrt(((vectors - centre) ** 2).sum(1).mean())))
        vectors, test = (vectors - centre) / length, (test - centre) / length
    regression = scikit_learn("linear_model").LogisticRegression(C=PENALTY, max_iter=STEPS)
    return regression.fit(vectors, labels).predict(test)


def clustering_metrics(vectors: Any, labels: Sequence[str], *, draws: int) -> dict[str, Interval]:
    """V-measure of vectors [n, D], dense or sparse, over documents and the seeds 0, 1, … of k-means."""
    classes = len(set(labels))
    if not 2 <= classes < len(labels):
        raise DataError(f"clustering needs two labels or more, and more documents than labels, not {classes} labels "
                        f"of {len(labels)} documents")  # fmt: skip
    means = scikit_learn("cluster").MiniBatchKMeans
    with warnings.catch_warnings():
        # equal vectors give fewer clusters than labels, which the score shows
        warnings.simplefilter("ignore", scikit_learn("exceptions").ConvergenceWarning)
        clusterings = [
            means(n_clusters=classes, batch_size=BATCH, n_init="auto", random_state=seed).fit_predict(vectors)
            for seed in range(draws)
        ]
    return {"v-measure": v_measure_interval(labels, clusterings)}
