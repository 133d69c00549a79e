"""Similarity of words in context compared with human judgements.

**SCWS** (Huang et al. 2012): 2,003 pairs of words, each in a paragraph, rated 0 to 10 by ten people; Spearman's ρ of
the cosine with the mean rating. A line of the file: number, word, part of speech, word, part of speech, both contexts
with the word between `<b>` and `</b>`, the mean, the ten ratings, separated by tabs.

**WiC** (Pilehvar & Camacho-Collados 2019): does a word have the same meaning in two sentences? The answer is yes if the
cosine exceeds a threshold, which is fitted on part of the pairs; accuracy is on the others. Records:
`{"label": 1, "text": "Word: window. Sentence 1: … Sentence 2: …"}`, where the word may occur in any of its forms, or
`{"label": true, "word": …, "sentence1": …, "sentence2": …}`, optionally with `start1`, `end1`, `start2`, `end2`.

    larvatus similar evaluate scws scws.tsv.xz --model runs/mine
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import Seed, ShareBetween
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.vectors.layers import Layers
from larvatus.inference.vectors.pooling import EmbedOptions, Pool
from larvatus.inference.vectors.similarity import WordInstance
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.metrics.classification import accuracy, best_threshold
from larvatus.metrics.ranking import spearman
from larvatus.models.nn.encoder import Encoder

_IRREGULAR = """
be am is are was were been being
bear bore borne born | beat beaten | become became | begin began begun | bend bent | bet | bind bound | bite bit bitten
bleed bled | blow blew blown | break broke broken | breed bred | bring brought | build built | burn burnt | burst
buy bought | catch caught | choose chose chosen | cling clung | come came | cost | creep crept | cut | deal dealt
dig dug | do did done does | draw drew drawn | dream dreamt | drink drank drunk | drive drove driven | eat ate eaten
fall fell fallen | feed fed | feel felt | fight fought | find found | flee fled | fling flung | fly flew flown
forbid forbade forbidden | forget forgot forgotten | forgive forgave forgiven | freeze froze frozen | get got gotten
give gave given | go went gone goes | grind ground | grow grew grown | hang hung | have had has | hear heard
hide hid hidden | hit | hold held | hurt | keep kept | kneel knelt | know knew known | lay laid | lead led
lean leant | leap leapt | learn learnt | leave left | lend lent | let
lie lay lain | light lit | lose lost | make made | mean meant | meet met
mistake mistook mistaken | overcome overcame | pay paid | prove proven | put | quit | read | ride rode ridden
ring rang rung | rise rose risen | run ran | say said | see saw seen | seek sought | sell sold | send sent | set
sew sewn | shake shook shaken | shed | shine shone | shoot shot | show shown
shrink shrank shrunk | shut | sing sang sung | sink sank sunk | sit sat
sleep slept | slide slid | smell smelt | sow sown | speak spoke spoken | speed sped | spell spelt | spend spent
spill spilt | spin spun span | spit spat | split | spoil spoilt | spread | spring sprang sprung | stand stood
steal stole stolen | stick stuck | sting stung | stink stank stunk | stride strode | strike struck stricken
strive strove striven | swear swore sworn | sweep swept | swell swollen | swim swam swum
swing swung | take took taken | teach taught
tear tore torn | tell told | think thought | throw threw thrown | thrust | tread trod trodden | understand understood
undertake undertook undertaken | wake woke woken | wear wore worn | weave wove woven | weep wept | win won | wind wound
withdraw withdrew withdrawn | withstand withstood | write wrote written
child children | foot feet | goose geese | man men | mouse mice | person people | tooth teeth | woman women | ox oxen
louse lice | half halves | knife knives | life lives | leaf leaves | loaf loaves | self selves | shelf shelves
thief thieves | wife wives | wolf wolves | calf calves | datum data | medium media | criterion criteria
phenomenon phenomena
analysis analyses | basis bases | crisis crises | thesis theses | axis axes
good better best | bad worse worst | far farther further farthest furthest | little less least | many more most
"""
_TABLE = {words[0]: frozenset(words) for entry in _IRREGULAR.replace("\n", "|").split("|") if (words := entry.split())}


def english_forms(word: str) -> frozenset[str]:
    """The word and its inflected forms, in lower case: regular ones by rules, which also make some that do not exist.

    >>> sorted(english_forms("die") & {"dies", "dying", "died", "dice"})
    ['died', 'dies', 'dying']
    """
    word = word.casefold()
    forms = {word, *_TABLE.get(word, ())}
    forms.update(word + ending for ending in ("s", "es", "ed", "d", "ing", "er", "r", "est", "st", "en", "n"))
    if word:
        forms.update(word + word[-1] + ending for ending in ("ing", "ed", "er", "est", "en"))
    if word.endswith("e"):
        forms.update(word[:-1] + ending for ending in ("ing", "ed"))
    if word.endswith("ie"):
        forms.add(word[:-2] + "ying")
    if word.endswith("y"):
        forms.update(word[:-1] + ending for ending in ("ies", "ied", "ier", "iest"))
    return frozenset(forms)


class SimilarityOptions(Settings):
    layers: tuple[Layers, ...] | None = None
    """Layers or mixes to evaluate; None for every single layer."""
    pool: Pool = "mean"
    standardise: Standardiser | None = None
    train: ShareBetween = 0.5
    """Share of the WiC pairs on which the threshold is fitted."""
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None and "all" in self.layers:
            raise UsageError("every layer is evaluated by default; omit --layers all")


class LayerScore(msgspec.Struct, frozen=True, kw_only=True):
    layers: str
    value: float
    error: float | None = None
    """Standard error of an accuracy."""
    threshold: float | None = None


class SimilarityEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    benchmark: str
    measure: str
    pairs: int
    scores: tuple[LayerScore, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WordPair:
    """Two words in context and the human rating of their similarity."""

    line: int
    a: WordInstance
    b: WordInstance
    rating: float


def evaluate_scws(
    encoder: Encoder, tokenizer: Tokenizer, file: Path, options: SimilarityOptions
) -> SimilarityEvaluation:
    """Spearman's ρ of cosines with mean ratings."""
    pairs = list(read_scws(file))
    if len(pairs) < 2:
        raise DataError(f"{file} holds {len(pairs)} pairs, and 2 are needed; name scws.tsv")
    ratings = [pair.rating for pair in pairs]
    scores = tuple(
        LayerScore(layers=name, value=spearman(cosines, ratings))
        for name, cosines in _cosines(encoder, tokenizer, file, pairs, options)
    )
    return SimilarityEvaluation(benchmark="scws", measure="Spearman's ρ", pairs=len(pairs), scores=scores)


def evaluate_wic(
    encoder: Encoder, tokenizer: Tokenizer, file: Path, options: SimilarityOptions
) -> SimilarityEvaluation:
    """Accuracy of cosine > threshold on pairs that were not used to fit the threshold."""
    lines = list(read_wic(file))
    pairs = [pair for pair in lines if isinstance(pair, WordPair)]
    lost = [line for line in lines if isinstance(line, int)]
    if len(pairs) < 2:
        raise DataError(f"{file} holds {len(pairs)} pairs whose words are found, and 2 are needed; name wic.jsonl")
    labels = np.array([pair.rating > 0 for pair in pairs])
    order = stream(options.seed, "threshold").permutation(len(pairs))
    cut = threshold_pairs(len(pairs), options)
    train, test = order[:cut], order[cut:]
    scores = []
    for name, cosines in _cosines(encoder, tokenizer, file, pairs, options):
        threshold = best_threshold(cosines[train], labels[train])
        value = accuracy(cosines[test] > threshold, labels[test])
        error = math.sqrt(value * (1 - value) / len(test))
        scores.append(LayerScore(layers=name, value=value, error=error, threshold=threshold))
    notes = [f"threshold fitted on {cut:,} pairs, accuracy on the other {len(test):,}"]
    notes += [f"{len(lost):,} pairs left out: the word is not found in a sentence (line {lost[0]})"] if lost else []
    return SimilarityEvaluation(
        benchmark="wic", measure="accuracy", pairs=len(pairs), scores=tuple(scores), notes=tuple(notes)
    )


def threshold_pairs(pairs: int, options: SimilarityOptions) -> int:
    """Number of WiC pairs on which the threshold is fitted; the others are scored."""
    return min(pairs - 1, max(1, round(options.train * pairs)))


def _cosines(
    encoder: Encoder, tokenizer: Tokenizer, file: Path, pairs: Sequence[WordPair], options: SimilarityOptions
) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.float64]]]]:
    """Name and [pairs] cosines of each layer or mix."""
    instances = [instance for pair in pairs for instance in (pair.a, pair.b)]
    texts = [instance.text for instance in instances]
    spans = [[(instance.start, instance.end)] for instance in instances]
    for asked in options.layers or ("all",):
        made = EmbedOptions(unit="span", layers=asked, pool=options.pool, standardise=options.standardise)
        vectors = embed_texts(encoder, tokenizer, texts, made, spans=spans)
        joined = np.concatenate([array.vectors for array in vectors], axis=-2).astype(np.float64)
        stack = joined if joined.ndim == 3 else joined[None]  # [l, 2 pairs, D]
        lengths = np.linalg.norm(stack, axis=-1, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)).all(axis=(0, 2)))
        if len(bad):
            word = instances[bad[0]].word
            raise DataError(f"{file}:{pairs[bad[0] // 2].line}: {word!r} has no vector; the vocabulary deletes it")
        unit = stack / lengths
        names = [str(asked)] if joined.ndim == 2 else [str(layer) for layer in range(len(stack))]
        for name, layer in zip(names, unit, strict=True):
            yield name, (layer[0::2] * layer[1::2]).sum(axis=1)


def read_scws(file: Path) -> Iterator[WordPair]:
    for number, line in _lines(file):
        fields = line.split("\t")
        try:
            _, _, _, _, _, a, b, mean, *_ = fields
            rating = float(mean)
        except ValueError as fault:
            raise DataError(f"{file}:{number}: not a line of SCWS: words, contexts, ratings between tabs") from fault
        yield WordPair(number, _between_tags(file, number, a), _between_tags(file, number, b), rating)


def _between_tags(file: Path, number: int, context: str) -> WordInstance:
    before, _, rest = context.partition("<b>")
    word, _, after = rest.partition("</b>")
    word, count = word.strip(), min(context.count("<b>"), context.count("</b>"))
    if not word or context.count("<b>") != 1 or rest.count("</b>") != 1:
        raise DataError(f"{file}:{number}: {count} words between <b> and </b> in a context; one is needed")
    return WordInstance(before + word + after, len(before), len(before) + len(word))


def _wic_text(text: str) -> tuple[str, str, str]:
    """Parse a word and two sentences from one text."""
    word, _, sentences = text.removeprefix("Word: ").partition(". Sentence 1: ")
    first, between, second = sentences.rpartition(" Sentence 2: ")
    if not text.startswith("Word: ") or not between:
        raise KeyError("Word: …. Sentence 1: … Sentence 2: …")
    return word, first, second


def read_wic(file: Path) -> Iterator[WordPair | int]:
    """The pairs, or the line number if the word is not found in its sentences."""
    for number, line in _lines(file):
        try:
            record = json.loads(line)
            label = {True: 1.0, False: 0.0}[record["label"]]
            if "text" in record:
                word, first, second = _wic_text(record["text"])
            else:
                word, first, second = record["word"], record["sentence1"], record["sentence2"]
            a = _of_word(first, word, record.get("start1"), record.get("end1"))
            b = _of_word(second, word, record.get("start2"), record.get("end2"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
            raise DataError(f"{file}:{number}: not a record of WiC ({fault!r}); name wic.jsonl") from fault
        yield WordPair(number, a, b, label) if a and b else number


def _of_word(text: str, word: str, start: int | None, end: int | None) -> WordInstance | None:
    """The first occurrence of the word, or else of one of its forms."""
    if start is not None and end is not None:
        if not 0 <= start < end <= len(text):
            raise ValueError(f"no span {start}:{end}")
        return WordInstance(text, start, end)
    forms = english_forms(word)
    spans = [(a, b) for a, b in segment_words(text).tolist() if text[a:b].casefold() in forms]
    exact = [(a, b) for a, b in spans if text[a:b].casefold() == word.casefold()]
    if not spans:
        at = text.casefold().find(word.casefold()) if len(segment_words(word)) > 1 else -1
        return WordInstance(text, at, at + len(word)) if at >= 0 else None
    return WordInstance(text, *(exact or spans)[0])


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    if not file.is_file():
        raise DataError(f"{file} does not exist; check the path")
    for number, line in numbered_lines(str(file)):
        if line.strip():
            yield number, line
