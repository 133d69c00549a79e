"""Hard negatives (Xiong et al. 2021, *ANCE*), and the vectors of a teacher.

    mined = nearest_negatives(vectors, problem, MiningOptions(mine=4))            # [A, 4] texts; −1 where there is none
    teacher = load_teacher("all-mpnet-base-v2")
    vectors = teacher_vectors(teacher, texts, TeacherOptions(scoring=scoring, folder=Path("mpnet-vectors")))
    vectors[np.array([3, 0])]                       # [2, K]

**Hard negatives** of an anchor are texts that are near to it and do not belong to it. A candidate c is a negative of
the anchor a with the positives P if its score stays below that of the worst positive by a share of it (Moreira et al.
2024, *NV-Retriever*, TopK-PercPos),

    s(a, c) ≤ m − margin · |m|        m = min_{p ∈ P} s(a, p)        s: cosine

Never a negative: a positive of the anchor, the anchor's own text, a text that differs from one of these only in case or
space, a text of the same group. The rest is ranked, nearest first; `mine_skip` of them are passed over, and the next
are taken, or a random choice among the next `mine_among`. Every anchor is compared with every candidate, in blocks, so
memory does not grow with either; equal scores rank in the order of the data. The result depends on the vectors and the
options only.

**A teacher's vectors** are computed once for the texts of a data set, and kept in a folder if one is named. It holds
parts of 8,192 texts, each with a checksum (`data/bulk/parts.py`), and what they are of: teacher, texts and how long
texts are read. A computation that was interrupted continues after its last part; another teacher or other texts are
refused. Parts are mapped from the disk, so memory does not grow with the texts.

A anchors, C candidates, D dimensions, K those of the teacher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt

from larvatus.core import files
from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import NumericsError, UsageError
from larvatus.core.ranges import CountOrNone, Share
from larvatus.core.rng import stream
from larvatus.core.settings import Flag, PathName, Settings
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.labelled.records import Dataset, Place, shorten
from larvatus.models.bundle.checksums import sentence_digest
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, sentence_bundle
from larvatus.models.bundle.sentence_modules import sentence_head, unsupported_modules
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.tasks.embed.encode import EncodeOptions, embedder_of, encode_sentences, pairs_of, text_vectors
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

ANCHORS, CANDIDATES = 256, 8_192
"""Anchors and candidates that are compared at once: 8 MiB of scores."""


class MiningOptions(Settings):
    """How hard negatives are mined."""

    mine: CountOrNone = 0
    """Hard negatives to mine for each pair, among the other positives; 0 for none."""
    mine_margin: Share = 0.05
    """A mined negative's cosine stays below that of the positive by this share of it."""
    mine_skip: CountOrNone = 0
    """Nearest candidates to pass over: they may be positives that nobody labelled."""
    mine_among: CountOrNone = 0
    """Choose at random among this many nearest candidates; 0 takes the nearest."""
    mine_model: Annotated[str | None, Flag(metavar="MODEL")] = None
    """Model whose vectors are compared; default: the model that is trained."""
    mined: Annotated[PathName | None, Flag(metavar="DIR")] = None
    """Folder that keeps the vectors that are compared: computed once, then read; an interrupted run is resumed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mine_among and self.mine_among < self.mine:
            raise UsageError(f"--mine-among {self.mine_among} is fewer than the {self.mine} that --mine takes")


class VectorRows(Protocol):
    """Vectors that are read some rows at a time."""

    def __getitem__(self, rows: Ints, /) -> Floats: ...


@dataclass(frozen=True, eq=False)
class MiningProblem:
    """Texts by number: which are anchors, which are candidates, and which belong together."""

    anchors: Ints
    """[A] text of each anchor."""
    candidates: Ints
    """[C] different texts that may be negatives."""
    positives: Sequence[Sequence[int]]
    """For each anchor, the texts that belong to it."""
    excluded: Sequence[Sequence[int]]
    """For each anchor, the places in `candidates` of texts that are no negatives of it."""


def nearest_negatives(vectors: VectorRows, problem: MiningProblem, options: MiningOptions) -> Ints:
    """The texts of the negatives of each anchor, nearest first: [A, mine]; −1 where there are fewer."""
    wanted = options.mine_skip + max(options.mine, options.mine_among)
    mined = np.full((len(problem.anchors), options.mine), -1, np.int64)
    for low in range(0, len(problem.anchors), ANCHORS):
        some = range(low, min(low + ANCHORS, len(problem.anchors)))
        anchors_BD = _unit(vectors[problem.anchors[low : some.stop]])
        limits_B = np.array(
            [_limit(x_D, vectors, problem.positives[n], options) for x_D, n in zip(anchors_BD, some, strict=True)],
            np.float32,
        )
        places_BK, scores_BK = _nearest(anchors_BD, limits_B, vectors, problem, low, wanted)
        for row, (places, scores) in enumerate(zip(places_BK, scores_BK, strict=True)):
            ranked = places[np.isfinite(scores)][options.mine_skip :]
            if options.mine_among and len(ranked) > options.mine:
                chance = stream(0, "mined negatives", item=low + row)
                ranked = ranked[np.sort(chance.permutation(len(ranked))[: options.mine])]
            chosen = problem.candidates[ranked[: options.mine]]
            mined[low + row, : len(chosen)] = chosen
    return mined


def _limit(anchor_D: Floats, vectors: VectorRows, positives: Sequence[int], options: MiningOptions) -> float:
    """The largest score of a negative."""
    worst = float((_unit(vectors[np.array(positives, np.int64)]) @ anchor_D).min())
    return worst - options.mine_margin * abs(worst)


def _nearest(
    anchors_BD: Floats, limits_B: Floats, vectors: VectorRows, problem: MiningProblem, low: int, wanted: int
) -> tuple[Ints, Floats]:
    """Places and scores of the best candidates within the limits, best first: [B, K]; score −∞ where there is none."""
    count = len(anchors_BD)
    places_BK = np.zeros((count, wanted), np.int64)
    best_BK = np.full((count, wanted), -np.inf, np.float32)
    for first in range(0, len(problem.candidates), CANDIDATES):
        texts = problem.candidates[first : first + CANDIDATES]
        scores_BC = anchors_BD @ _unit(vectors[texts]).T
        scores_BC[scores_BC > limits_B[:, None]] = -np.inf
        for row in range(count):
            inside = [place - first for place in problem.excluded[low + row] if 0 <= place - first < len(texts)]
            scores_BC[row, inside] = -np.inf
            better = np.flatnonzero(scores_BC[row] > best_BK[row, -1])
            scores = np.concatenate([best_BK[row], scores_BC[row, better]])
            places = np.concatenate([places_BK[row], better + first])
            order = np.argsort(-scores, kind="stable")[:wanted]
            best_BK[row], places_BK[row] = scores[order], places[order]
    return places_BK, best_BK


def _unit(x_ND: Floats) -> Floats:
    """Vectors of length 1; zeros stay."""
    lengths = np.linalg.norm(x_ND, axis=1, keepdims=True)
    unit: Floats = (x_ND / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return unit


def anchors_and_candidates(examples: Sequence[SentenceExample]) -> tuple[MiningProblem, list[str]]:
    """The problem of pairs (groups are pairs already, see `as_pairs`), and its texts by number."""
    numbers: dict[str, int] = {}
    belongs: dict[int, set[int]] = {}
    group_of: dict[int, set[str]] = {}
    for example in examples:
        anchor, positive = (numbers.setdefault(text, len(numbers)) for text in example.texts[:2])
        belongs.setdefault(anchor, set()).add(positive)
        for number in (anchor, positive) if example.group is not None else ():
            group_of.setdefault(number, set()).add(str(example.group))
    texts = list(numbers)
    anchors, candidates = list(belongs), list(dict.fromkeys(numbers[example.texts[1]] for example in examples))
    excluded = places_alike([[anchor, *belongs[anchor]] for anchor in anchors], candidates, texts, group_of)
    positives = [sorted(belongs[anchor]) for anchor in anchors]
    return MiningProblem(np.array(anchors, np.int64), np.array(candidates, np.int64), positives, excluded), texts


def places_alike(
    members: Sequence[Sequence[int]],
    candidates: Sequence[int],
    texts: Sequence[str],
    group_of: Mapping[int, Collection[str]],
) -> list[list[int]]:
    """For the texts of each anchor, the places of candidates that differ in case and space only, or share a group."""
    alike: dict[str, list[int]] = {}
    for place, number in enumerate(candidates):
        for key in _keys(texts[number], group_of.get(number, ())):
            alike.setdefault(key, []).append(place)
    places = []
    for numbers in members:
        keys = {key for number in numbers for key in _keys(texts[number], group_of.get(number, ()))}
        places.append(sorted({place for key in keys for place in alike.get(key, ())}))
    return places


def _keys(text: str, groups: Collection[str]) -> list[str]:
    """Texts with a key in common belong together: the text without case and space, and its groups."""
    return [f"text {' '.join(text.casefold().split())}", *(f"group {name}" for name in groups)]


def as_pairs(data: Dataset[SentenceExample]) -> list[SentenceExample]:
    """Examples of pairs; the texts of a group become pairs that keep its name."""
    if data.examples[0].rows != "groups":
        return list(data.examples)
    members: dict[str, list[SentenceExample]] = {}
    for example in data:
        members.setdefault(str(example.group), []).append(example)
    pairs = []
    for number, (name, group) in enumerate(members.items()):
        different = {example.texts[0]: example for example in group}
        named = list(different.values())
        for first, second in pairs_of(range(len(named)), number):
            texts = (named[first].texts[0], named[second].texts[0])
            pairs.append(SentenceExample(texts, "pairs", named[first].place, group=name))
    return pairs


def with_negatives(
    examples: Sequence[SentenceExample], problem: MiningProblem, texts: Sequence[str], mined: Ints
) -> list[SentenceExample]:
    """The pairs as triplets with their negatives, of which some may have none."""
    numbers = {text: number for number, text in enumerate(texts)}
    rows = {int(anchor): row for row, anchor in enumerate(problem.anchors)}
    made = []
    for example in examples:
        negatives = mined[rows[numbers[example.texts[0]]]]
        added = tuple(texts[number] for number in negatives.tolist() if number >= 0)
        made.append(
            SentenceExample((*example.texts, *added), "triplets", example.place, group=example.group, id=example.id)
        )
    return made


# The vectors of a teacher.

AT_ONCE = 8_192
"""Texts of a part."""


class TextsDone(Settings):
    """How far the computation has come."""

    texts: int = 0


@dataclass(frozen=True, eq=False)
class TeacherVectors:
    """[U, K] vectors in parts of `AT_ONCE` rows, in memory or mapped."""

    parts: Sequence[Floats]
    width: int

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, rows: Ints) -> Floats:
        chosen = np.asarray(rows, np.int64)
        vectors = np.empty((len(chosen), self.width), np.float32)
        for number in np.unique(chosen // AT_ONCE).tolist():
            in_part = chosen // AT_ONCE == number
            vectors[in_part] = self.parts[number][chosen[in_part] % AT_ONCE]
        return vectors

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[np.arange(len(self))], dtype)


def load_teacher(name: str) -> Bundle:
    """A model that embeds: with its own head, or any other encoder with the mean of its tokens."""
    bundle = sentence_bundle(load_bundle(name))
    if sentence_head(bundle.objectives) is not None:
        return bundle
    if any(getattr(config, "in_modules", False) for config in bundle.objectives):
        raise UsageError(f"the teacher {name} gives late or sparse vectors; use a teacher with one vector for a text")
    if bundle.pooling:
        modules = unsupported_modules(bundle.path, bundle.tokenizer.template, hidden=bundle.model.hidden)
        raise UsageError(f"the teacher {name} has {modules or bundle.pooling}, which Larvatus does not have")
    return attach_head(bundle, EmbeddingConfig(), seed=0)[0]


def teacher_vectors(
    teacher: Bundle,
    texts: Sequence[str],
    scoring: ScoringOptions,
    *,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> TeacherVectors:
    """The vector of each text, from the folder where they are kept, or computed."""
    width = embedder_of(teacher.network).size_of_vector
    teacher.network.to(scoring.device)
    if folder is None:
        blocks = [_computed(teacher, texts, start, scoring) for start in range(0, len(texts), AT_ONCE)]
        return TeacherVectors(blocks, width)
    parts = PartsFolder(folder, _identity(teacher, texts), kind=TextsDone, suffix=".npy")
    with files.locked(folder), parts.removed_when_empty():
        done = parts.open(resume=True).texts
        if done:
            say(f"teacher: {done:,} of {len(texts):,} vectors are in {folder}")
        for start in range(done, len(texts), AT_ONCE):
            block = _computed(teacher, texts, start, scoring)
            parts.write(_saved(block), TextsDone(texts=start + len(block)), size=block.nbytes)
        mapped = [np.load(path, mmap_mode="r") for path in parts.paths()]
    return TeacherVectors(mapped, width)


def _saved(block: Floats) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, block)

    return write


def _computed(teacher: Bundle, texts: Sequence[str], start: int, scoring: ScoringOptions) -> Floats:
    block = texts[start : start + AT_ONCE]
    examples = [SentenceExample((text,), "texts", Place("text", start + n)) for n, text in enumerate(block, start=1)]
    head = embedder_of(teacher.network)
    options = EncodeOptions(pool=head.config.pool, windows=WindowOptions.of(teacher))
    data = encode_sentences(teacher, examples, options)
    vectors = text_vectors(teacher.network, data, scoring)[data.texts]
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(bad):
        raise NumericsError(f"the teacher gives no finite vector for {shorten(block[int(bad[0])])}; use another")
    return vectors


def _identity(teacher: Bundle, texts: Sequence[str]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text.encode("utf-8", "surrogatepass"))
    return {"teacher": sentence_digest(teacher.path), "texts": digest.hexdigest(), "count": len(texts)}
