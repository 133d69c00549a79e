"""Texts as sentences of words, and frames of these words as characters of the text.

read = ReadText.of(TextExample("Ann ran. Bob slept.", None, None, place), "en")
read.words                      # [('Ann', 'ran', '.'), ('Bob', 'slept', '.')]
read.answer(frames, coverage)   # `TextFrames`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from larvatus.core.errors import DataError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import Place, TaggedExample, TextExample
from larvatus.data.text.words import segment_words, sentence_spans
from larvatus.tasks.results import Coverage
from larvatus.tasks.roles.examples import CONTINUED, VERB, Frame, FramedSentence
from larvatus.tasks.roles.labelling import LabelledFrame
from larvatus.tasks.roles.results import ArgumentSpan, PredicateSpan, PredictedFrame, TextFrames

WordPlaces = tuple[tuple[int, int], ...]
OWN = (VERB, CONTINUED + VERB)


@dataclass(frozen=True, eq=False)
class ReadText:
    """A text with its sentences."""

    text: str
    places: list[WordPlaces]
    """Characters of the words of each sentence."""
    given: list[tuple[int, ...]] | None
    """Predicates of each sentence, where they are given."""
    place: Place
    id: str | None

    @classmethod
    def of(cls, example: TextExample | TaggedExample | FramedSentence, language: str) -> ReadText:
        """Plain text is split into sentences and words; words are one sentence."""
        if (located := example.located()) is not None:
            text, places = located
            refuse_surrogates(text, str(example.place))
            frames = getattr(example, "frames", None)
            given = None if frames is None else [tuple(frame.predicate for frame in frames)]
            return cls(text, [places], given, example.place, example.id)
        plain = example.plain_text()
        if plain is None or plain.pair is not None:
            raise DataError(f"{example.place} is a pair, but the model labels one text")
        refuse_surrogates(plain.text, str(example.place))
        sentences = []
        for start, end in sentence_spans(plain.text, language=language):
            words = (segment_words(plain.text[start:end]) + start).tolist()
            sentences.append(tuple((first, last) for first, last in words))
        return cls(plain.text, [words for words in sentences if words], None, example.place, example.id)

    @property
    def words(self) -> list[tuple[str, ...]]:
        """The words of each sentence."""
        return [tuple(self.text[start:end] for start, end in places) for places in self.places]

    def answer(self, frames: Sequence[Sequence[LabelledFrame]], coverage: Coverage) -> TextFrames:
        """The frames of the sentences, in characters of the text."""
        shown, sentences = [], []
        for number, (labelled, words) in enumerate(zip(frames, self.words, strict=True)):
            wanted = None if self.given is None else set(self.given[number])
            kept = [each for each in labelled if (each.is_predicate if wanted is None else each.predicate in wanted)]
            shown += [self._frame(each, self.places[number]) for each in kept]
            in_words = tuple(Frame(each.predicate, each.roleset, each.arguments) for each in kept)
            sentences.append(FramedSentence(words, in_words, self.place, id=self.id))
        return TextFrames(text=self.text, frames=tuple(shown), sentences=tuple(sentences), coverage=coverage)

    def _frame(self, frame: LabelledFrame, places: WordPlaces) -> PredictedFrame:
        first = last = frame.predicate
        arguments = []
        for span, score in zip(frame.arguments, frame.scores, strict=True):
            if span.role in OWN and span.first <= frame.predicate <= span.last:
                first, last = span.first, span.last
                continue
            start, end = places[span.first][0], places[span.last][1]
            text = self.text[start:end]
            arguments.append(ArgumentSpan(role=span.role, text=text, start=start, end=end, score=score))
        start, end = places[first][0], places[last][1]
        return PredictedFrame(
            predicate=PredicateSpan(text=self.text[start:end], start=start, end=end, score=frame.probability),
            roleset=frame.roleset,
            roleset_score=frame.sense_probability,
            arguments=tuple(arguments),
        )
