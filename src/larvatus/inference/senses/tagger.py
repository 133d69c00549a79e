"""The nearest sense: a word takes the sense whose vector has the largest cosine with its own (chapter eq. 11.9).

    tagger = SenseTagger(encoder, tokenizer, inventory, wordnet)
    for word in tagger.tag("They sat on the bank of the river."):
        print(word.text, word.key, word.similarity)

The candidates are the senses of the word's lemma and, if it is known, part of speech. A word with one sense takes it. A
sense without tagged words backs off (`build.py`); if no candidate has a vector, WordNet's first sense is the answer.
Each step can be switched off; a word for which no step is left has no answer.

`find_instances` finds the words of running text that are in WordNet, longest phrases first, with the lemmas they may be
forms of. Parts of speech are not tagged: a word may have any part of speech that WordNet has for it. `find_tagged`
reads text with tags, as in `They/PRON saw/VERB a/DET bat/NOUN`. Function words are skipped, because WordNet lists some
of them only in other meanings (*in* as an inch, *I* as iodine).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, overload

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.ranges import Weight
from larvatus.core.settings import Settings
from larvatus.core.tables import ResultList, Tabular
from larvatus.core.text_inputs import checked_texts
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import Mode, segment_words, sentence_spans
from larvatus.inference.senses.build import Rung, SenseBackoff, SenseCandidates, Step, embed_instances
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import Lemmas, SenseInstance, SenseSentence, SentenceBuilder
from larvatus.inference.senses.wordnet import NAMES, POS, WordNet
from larvatus.models.nn.encoder import Encoder

_CLOSED = """
    a an the this that these those each every some any no all both either neither such what which whose i me my mine
    myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it
    its itself they them their theirs themselves one ones who whom someone anyone everyone nobody of in on at by for
    with from to into onto upon about as over under through during before after between among against within without
    toward towards across along behind beside beyond near off out up down than per via and or but nor so yet if
    because while although though unless until whether when where why how since will would can could may might shall
    should must ought not there s t d m ll re ve
"""
FUNCTION_WORDS = frozenset(_CLOSED.split())
"""Closed classes of English, and remains of clitics; content words of the same form (a *can*) are skipped, too."""
PENN: dict[str, POS] = {"N": "n", "V": "v", "J": "a", "R": "r"}
UNIVERSAL: dict[str, POS] = {"NOUN": "n", "PROPN": "n", "VERB": "v", "AUX": "v", "ADJ": "a", "ADV": "r"}


def find_instances(
    text: str,
    wordnet: WordNet,
    *,
    pos: Sequence[POS] | None = None,
    sentences: Mode = "library",
    document: str = "",
) -> list[SenseSentence]:
    """The sentences of a text, each with its words that are in WordNet."""
    with_instances = []
    for start, end in sentence_spans(text, mode=sentences):
        sentence = text[start:end]
        with_instances.append(SenseSentence(document, sentence, tuple(_instances(sentence, wordnet, pos)), start))
    return with_instances


def find_tagged(text: str, wordnet: WordNet, *, where: str = "") -> tuple[str, list[SenseSentence]]:
    """Sentences, one per line, whose words have their part of speech after a slash; and the text without the tags.

    Tags are universal, Penn, or WordNet's own n, v, a, r. `where` precedes error messages.
    """
    sentences: list[SenseSentence] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = SentenceBuilder()
        for item in line.split():
            word, _, tag = item.rpartition("/")
            if not word or not tag:
                raise DataError(
                    f"{where}{item[:40]} in line {number} has no part of speech; write bank/NOUN, or leave out --pos"
                )
            span = words.add(word.replace("_", " "))
            pos = UNIVERSAL.get(tag.upper()) or PENN.get(tag[:1]) or (tag if tag in NAMES else None)
            lemmas = tuple(wordnet.lemmas(word, pos)) if pos else ()
            if lemmas:
                words.instances.append(SenseInstance(*span, lemmas))
        sentences.append(replace(words.sentence(""), start=start))
        start += len(sentences[-1].text) + 1
    return "\n".join(sentence.text for sentence in sentences), sentences


def _instances(text: str, wordnet: WordNet, pos: Sequence[POS] | None) -> list[SenseInstance]:
    spans = segment_words(text).tolist()
    instances: list[SenseInstance] = []
    place = 0
    while place < len(spans):
        longest = _longest_phrase(text[slice(*spans[place])], wordnet)
        step = 1
        for last in range(min(place + longest, len(spans)) - 1, place - 1, -1):
            start, end = spans[place][0], spans[last][1]
            lemmas = _lemmas(text[start:end], wordnet, pos, single=last == place)
            if lemmas:
                instances.append(SenseInstance(start, end, lemmas))
                step = last - place + 1
                break
        place += step
    return instances


def _lemmas(text: str, wordnet: WordNet, pos: Sequence[POS] | None, *, single: bool) -> Lemmas:
    word = "_".join(text.lower().split())
    if single and (word in FUNCTION_WORDS or not any(map(str.isalnum, word))):
        return ()
    return tuple((lemma, kind) for lemma, kind in wordnet.lemmas(word) if pos is None or kind in pos)


def _longest_phrase(word: str, wordnet: WordNet) -> int:
    """Number of words of the longest phrase that begins with a word or one of its lemmas."""
    lower, heads = word.lower(), wordnet.phrase_heads
    return max(heads.get(form, 1) for form in {lower, *(lemma for lemma, _ in wordnet.lemmas(lower))})


How = Literal[Rung, "only", "first-sense"]
"""Source of an answer: the level of its vector, the only sense of the word, or WordNet's order."""


class SenseOptions(Settings):
    backoff: tuple[Step, ...] = get_args(Step)
    """Back-off steps that are allowed."""
    standardise: bool = False
    """Standardise vectors (eq. 11.12) with the moments of the inventory's tagged words."""
    discourse: bool = False
    """One sense per discourse (Gale et al. 1992): a lemma has the same sense in a whole document, the one with the
    largest sum of similarities."""
    prior: Weight = 0.0
    """Weight of log P(sense | lemma), from counts in the tagged text, added to the cosine; not part of eq. 11.9."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for step in self.backoff:
            if step not in get_args(Step):
                raise UsageError(f"{step!r} is not a back-off step{did_you_mean(str(step), get_args(Step))}")


@dataclass(frozen=True)
class SenseTaggedWord(Tabular):
    """A word with its sense."""

    text: str
    start: int
    end: int
    """Characters in the text."""
    id: str
    """Name of the word in a test set; empty in running text."""
    lemmas: Lemmas
    key: str | None
    """Sense key; None if no step gives an answer."""
    synset: str | None
    how: How | None
    similarity: float | None
    """Cosine with the sense's vector; None if no vector was compared."""

    @property
    def lemma(self) -> str:
        return self.key.partition("%")[0] if self.key else self.lemmas[0][0]

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            **({"id": self.id} if self.id else {}),
            "lemma": self.lemma,
            "key": self.key,
            "synset": self.synset,
            "how": self.how,
            "similarity": self.similarity,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]


@dataclass(frozen=True)
class _Word:
    sentence: SenseSentence
    instance: SenseInstance
    candidates: SenseCandidates
    scores: Floats  # [C] cosines; -inf for senses without a vector


class SenseTagger:
    """A model, its sense vectors and WordNet."""

    def __init__(
        self,
        encoder: Encoder,
        tokenizer: Tokenizer,
        inventory: SenseInventory,
        wordnet: WordNet,
        options: SenseOptions | None = None,
    ) -> None:
        inventory.check(wordnet)
        self.encoder, self.tokenizer, self.inventory, self.wordnet = encoder, tokenizer, inventory, wordnet
        self.options = options or SenseOptions()
        self.backoff = SenseBackoff(
            inventory, wordnet, steps=self.options.backoff, standardise=self.options.standardise
        )

    @overload
    def tag(self, texts: str, *, pos: Sequence[POS] | None = ...) -> ResultList[SenseTaggedWord]: ...  # type: ignore[overload-overlap]  # a text is a sequence of texts

    @overload
    def tag(
        self, texts: Sequence[str], *, pos: Sequence[POS] | None = ...
    ) -> ResultList[ResultList[SenseTaggedWord]]: ...

    def tag(
        self, texts: str | Sequence[str], *, pos: Sequence[POS] | None = None
    ) -> ResultList[SenseTaggedWord] | ResultList[ResultList[SenseTaggedWord]]:
        """The words of a text that are in WordNet, each with its sense.

        Args:
            texts: One text, or several.
            pos: Only words of these parts of speech.

        Returns:
            Tagged words of one text; for several, a list of such.
        """
        listed, single = checked_texts(texts)
        tagged: ResultList[Any] = ResultList(
            self.tag_sentences(find_instances(text, self.wordnet, pos=pos)) for text in listed
        )
        return tagged[0] if single else tagged

    def tag_sentences(
        self, sentences: Sequence[SenseSentence], vectors: Sequence[Floats] | None = None
    ) -> ResultList[SenseTaggedWord]:
        """The instances of sentences, in order, each with its sense. `vectors` are those of `embed`, if known."""
        words = self._words(sentences, self.embed(sentences) if vectors is None else vectors)
        return ResultList(self._answer(word, scores) for word, scores in self._decided(words))

    def embed(self, sentences: Sequence[SenseSentence]) -> list[Floats]:
        """The vectors [I, D] of the instances of each sentence, computed like those of the senses."""
        return embed_instances(self.encoder, self.tokenizer, sentences, self.inventory.origin.options)

    def _words(self, sentences: Sequence[SenseSentence], vectors: Sequence[Floats]) -> list[_Word]:
        return [
            self._scored(sentence, instance, vector)
            for sentence, vectors_of_sentence in zip(sentences, vectors, strict=True)
            for instance, vector in zip(sentence.instances, self.backoff.apply(vectors_of_sentence), strict=True)
        ]

    def _scored(self, sentence: SenseSentence, instance: SenseInstance, vector: Floats) -> _Word:
        candidates = self.backoff.candidates(instance.lemmas)
        known = np.array([rung is not None for rung in candidates.rungs], dtype=np.bool_)
        if np.isnan(vector[:1]).any():  # the vocabulary deletes the word: there is nothing to compare
            known[:] = False
        cosines = candidates.vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
        return _Word(sentence, instance, candidates, np.where(known, cosines, -np.inf).astype(np.float32))

    def _decided(self, words: Sequence[_Word]) -> Iterator[tuple[_Word, Floats]]:
        """Each word with its deciding scores: its own, or the sum over its document."""
        if not self.options.discourse:
            yield from ((word, word.scores) for word in words)
            return
        sums: dict[tuple[str, Lemmas], Floats] = {}
        for word in words:
            place = word.sentence.document, word.instance.lemmas
            if np.isfinite(word.scores).any():  # a word without a vector has no vote
                sums[place] = sums[place] + word.scores if place in sums else word.scores
        for word in words:
            yield word, sums.get((word.sentence.document, word.instance.lemmas), word.scores)

    def _answer(self, word: _Word, scores: Floats) -> SenseTaggedWord:
        senses, instance = word.candidates.senses, word.instance
        place: int | None = None
        how: How | None = None
        if len(senses) == 1:
            place, how = 0, "only"
        elif np.isfinite(scores).any():
            place = int(np.argmax(scores + self.options.prior * word.candidates.prior))
            how = word.candidates.rungs[place]
        elif senses and "first-sense" in self.options.backoff:
            place, how = 0, "first-sense"
        cosine = None if place is None else float(word.scores[place])
        return SenseTaggedWord(
            text=word.sentence.text[instance.start : instance.end],
            start=word.sentence.start + instance.start,
            end=word.sentence.start + instance.end,
            id=instance.id,
            lemmas=instance.lemmas,
            key=None if place is None else senses[place].key,
            synset=None if place is None else senses[place].synset,
            how=how,
            similarity=None if cosine is None or cosine == -np.inf else cosine,
        )
