"""Predicates, rolesets and arguments of sentences by a model: one pass over each sentence, for all its predicates.

    labelled = label_frames(model, tokenizer, sentences, scoring=scoring, windows=windows)       # predicates are found
    labelled = label_frames(…, given=[[1], []])                                                  # or given, or both

Sentences of nearly equal length share a batch, without padding. Where predicates are given, the others are found too,
so that one pass gives the answers for both. Arguments are the best sequence of BIO tags that is legal and has the
predicate in V, or the best set of spans that share no word.
E sentences, F predicates, R rows, K tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges, runs
from larvatus.data.text.tag_schemes import legal_transitions, read_leniently
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.roles import FrameIndex, RolesConfig, SemanticRoles
from larvatus.models.network import Network
from larvatus.models.nn.crf import AllowedTransitions, constrained_viterbi
from larvatus.models.nn.device import on_device
from larvatus.models.nn.span_scorer import SpanIndex
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions
from larvatus.tasks.features import Features
from larvatus.tasks.roles.encode import ReadSentences, encode_sentences, frame_spots
from larvatus.tasks.roles.examples import CONTINUED, VERB, RoleSpan
from larvatus.tasks.roles.lexicon import PredicateLexicon
from larvatus.tasks.scoring import ScoringOptions, head_as
from larvatus.tasks.spans.decoding import decode_spans, find_candidates

EVEN = 0.5
"""Probability that a word must reach to be a predicate, and a span to be an argument rather than none."""
FORBIDDEN = -1e6
ROWS = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Rows of predicates and words near them that are scored at a time, whatever the length of a sentence."""


@dataclass(frozen=True, kw_only=True)
class LabelledFrame:
    """A predicate with its sense and arguments, as a model gives them."""

    predicate: int
    probability: float
    """Probability that the word is a predicate."""
    roleset: str
    sense_probability: float
    """Probability of the roleset among those of its lemma; 0 for a lemma that training lacks."""
    arguments: tuple[RoleSpan, ...]
    """V is among them."""
    scores: tuple[float, ...]
    """How sure each argument is: the probability of its least certain word, or of the span against none."""

    @property
    def is_predicate(self) -> bool:
        """Whether it is a predicate by the model, not only given."""
        return self.probability >= EVEN


@dataclass(frozen=True, eq=False)
class LabelledSentences:
    frames: list[tuple[LabelledFrame, ...]]
    """Frames of each sentence, in the order of predicates."""
    sequences: Sequences
    """The sentences as they were read to find predicates."""


def roles_head(model: Network, name: str = "the model") -> SemanticRoles:
    """The head of a model that labels semantic roles."""
    return head_as(model, SemanticRoles, "label semantic roles", name)


def label_frames(
    model: Network,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    *,
    scoring: ScoringOptions,
    windows: WindowOptions,
    given: Sequence[Sequence[int]] | None = None,
    features: Features | None = None,
    scores: bool = True,
) -> LabelledSentences:
    """The predicates that the model finds, and those that are given, each with its sense and arguments.

    `features` are outputs of a frozen encoder for these sentences, which is then not run. Without `scores`, those of
    arguments by a CRF are NaN, which takes half the time.
    """
    read, head = encode_sentences(tokenizer, sentences, windows), roles_head(model)
    predicates: list[tuple[int, ...]] = [()] * len(sentences)
    frames: list[tuple[LabelledFrame, ...]] = [()] * len(sentences)
    sure: list[Floats] = [np.empty(0, np.float32)] * len(sentences)
    labeller = FrameLabeller.of(head, sentences, sure, scores=scores)
    for batch in word_batches(model, read, scoring, features):
        for sentence, p_W in batch.predicate_probabilities(head):
            wanted = set(np.flatnonzero(p_W >= EVEN).tolist())
            if given is not None:
                wanted |= {word for word in given[sentence] if word < len(p_W)}
            predicates[sentence], sure[sentence] = tuple(sorted(wanted)), p_W
        if not head.config.one_by_one:
            labeller.label(batch, predicates, frames)
    if head.config.one_by_one:
        again = encode_sentences(tokenizer, sentences, windows, marks=predicates, plain=False)
        for batch in word_batches(model, again, scoring):
            labeller.label(batch, predicates, frames)
    return LabelledSentences(frames, read.sequences)


@dataclass(frozen=True, eq=False)
class WordBatch:
    """Vectors of the words of some sentences."""

    sentences: Ints  # [E]
    readings: Ints  # [E] how often each is read
    words: Ints  # [E] words of each, over all its readings
    h_WD: Tensor

    @torch.inference_mode()
    def predicate_probabilities(self, head: SemanticRoles) -> Iterator[tuple[int, Floats]]:
        """How sure each word of each sentence is a predicate."""
        p_W = torch.softmax(head.predicate(self.h_WD).float(), -1)[:, 1].cpu().numpy()
        for sentence, (low, high) in zip(self.sentences.tolist(), pairwise(edges(self.words).tolist()), strict=True):
            yield sentence, p_W[low:high]


def word_batches(
    model: Network, read: ReadSentences, scoring: ScoringOptions, features: Features | None = None
) -> Iterator[WordBatch]:
    """Sentences in batches of neighbours in length, through encoder, unless there are features, and trunk."""
    head = roles_head(model)
    model.eval()
    tokens = read.tokens
    order = np.argsort(tokens, kind="stable")
    order = order[tokens[order] > 0]  # a sentence without predicates is not read again
    for first, last in runs(tokens[order], scoring.budget):
        chosen = order[first:last]
        with torch.inference_mode(), scoring.autocast():
            if features is not None:
                x = features.of(chosen)
            else:
                given = read.batch(chosen)
                batch = on_device(TrainingBatch(tokens=given, targets={}), scoring.device)
                states = head.states(model.encoder, batch.tokens, limit=int(given.lengths.max()))
                x = head.features(states, batch)
            h_WD = head.trunk(x)
        yield WordBatch(chosen, read.readings[chosen], read.counts(chosen)[1], h_WD.float())


Arguments = list[tuple[str, int, int, float]]
"""Role, first and last word, counted from the first near the predicate, and score."""


@dataclass(frozen=True, eq=False)
class FrameLabeller:
    """Gives predicates their senses and arguments."""

    head: SemanticRoles
    lexicon: PredicateLexicon
    sentences: Sequence[Sequence[str]]
    sure: Sequence[Floats]
    """[W] probability of each word of each sentence to be a predicate."""
    allowed: AllowedTransitions
    scores: bool
    """Whether to compute the marginals of a CRF."""

    @classmethod
    def of(
        cls, head: SemanticRoles, sentences: Sequence[Sequence[str]], sure: Sequence[Floats], *, scores: bool
    ) -> FrameLabeller:
        config = head.config
        allowed = AllowedTransitions.of(legal_transitions(config.tags, "BIO"))
        return cls(head, PredicateLexicon.of(config), sentences, sure, allowed, scores)

    @torch.inference_mode()
    def label(
        self, batch: WordBatch, predicates: Sequence[Sequence[int]], frames: list[tuple[LabelledFrame, ...]]
    ) -> None:
        """Label the predicates of the sentences of a batch; their frames are put into the list."""
        config = self.head.config
        chosen = [predicates[sentence] for sentence in batch.sentences.tolist()]
        size = batch.words // batch.readings
        spots = frame_spots(chosen, size, reach=config.reach, marked=config.one_by_one, plain=False)
        if not len(spots.predicates):
            return
        index = spots.index(batch.words, batch.h_WD.device)
        forms = [
            self.sentences[sentence][word]
            for sentence, words in zip(batch.sentences.tolist(), chosen, strict=True)
            for word in words
        ]
        senses, arguments = [], []
        for first, last in runs(spots.lengths, ROWS.get(batch.h_WD.device.type, ROWS["cpu"])):
            part = index.part(first, last, int(spots.lengths[first:last].sum()))
            senses += self._senses(batch.h_WD, part, forms[first:last])
            arguments += self._arguments(batch.h_WD, part)
        place = 0
        for sentence, words in zip(batch.sentences.tolist(), chosen, strict=True):
            several = []
            for word in words:
                start = word - min(word, config.reach)
                spans = [(RoleSpan(role, a + start, b + start), score) for role, a, b, score in arguments[place]]
                several.append(
                    LabelledFrame(
                        predicate=word,
                        probability=float(self.sure[sentence][word]),
                        roleset=senses[place][0],
                        sense_probability=senses[place][1],
                        arguments=tuple(span for span, _ in spans),
                        scores=tuple(score for _, score in spans),
                    )
                )
                place += 1
            frames[sentence] = tuple(several)

    def _senses(self, h_WD: Tensor, index: FrameIndex, forms: Sequence[str]) -> list[tuple[str, float]]:
        """The likeliest roleset of each predicate, and how sure it is."""
        candidates = [self.lexicon.candidates(form) for form in forms]
        counts = torch.tensor([len(each) for each in candidates], device=h_WD.device)
        flat = torch.tensor([n for each in candidates for n in each], dtype=torch.int64, device=h_WD.device)
        p_FK = torch.softmax(self.head.sense_scores(h_WD, index, counts, flat), -1)
        best = p_FK.max(-1)
        answers = zip(forms, candidates, best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            (self.lexicon.rolesets[number], share) if known else (self.lexicon.guess(form), 0.0)
            for form, known, number, share in answers
        ]

    def _arguments(self, h_WD: Tensor, index: FrameIndex) -> list[Arguments]:
        """The arguments of each predicate."""
        u_RH = self.head.argument_rows(h_WD, index)
        place_F = (index.predicates - index.first).cpu()
        if self.head.scorer is None:
            scores = self.head.tag_scores(u_RH).float().cpu()
            return self._tagged(scores, index.lengths.cpu(), place_F)
        spans = SpanIndex.of(index.lengths, longest=self.head.config.longest)
        scores = self.head.scorer(u_RH, spans).float().cpu()
        bounds = spans.first_M.cpu().numpy(), spans.last_M.cpu().numpy()
        return scored_arguments(self.head.config, scores.numpy(), bounds, index.lengths.cpu().numpy(), place_F.numpy())

    def _tagged(self, scores_RK: Tensor, lengths_F: Tensor, place_F: Tensor) -> list[Arguments]:
        """Arguments by the best legal tags, in which the predicate's own word is in V."""
        crf, names = self.head.crf, self.head.config.tags
        rows = place_F + lengths_F.cumsum(0) - lengths_F
        others = torch.tensor([tag[2:] not in (VERB, CONTINUED + VERB) for tag in names])
        if not others.all():
            scores_RK = scores_RK.index_put((rows,), scores_RK[rows] + others * FORBIDDEN)
        if crf is None:
            tags = constrained_viterbi(scores_RK, lengths_F, self.allowed)
            p_RK = torch.softmax(scores_RK, -1)
        else:
            tags = crf.viterbi(scores_RK, lengths_F, allowed=self.allowed)
            nothing = torch.full_like(scores_RK, torch.nan)
            p_RK = crf.marginals(scores_RK, lengths_F, allowed=self.allowed) if self.scores else nothing
        sure = p_RK.gather(1, tags[:, None]).squeeze(1).tolist()
        written = [names[tag] for tag in tags.tolist()]
        return [
            [
                (label, first, end - 1, min(sure[low + first : low + end]))
                for first, end, label in read_leniently(written[low:high], "BIO")
            ]
            for low, high in pairwise(edges(lengths_F.numpy()).tolist())
        ]


def scored_arguments(
    config: RolesConfig, scores_MK: Floats, bounds: tuple[Ints, Ints], lengths_F: Ints, place_F: Ints
) -> list[Arguments]:
    """Arguments by the best spans that share no word, in which the predicate's own word is in V."""
    first_M, last_M = bounds
    begins = edges(lengths_F)
    frames_M = np.searchsorted(begins, first_M, side="right") - 1
    words_M = (begins[:-1] + place_F)[frames_M]
    verbs = np.array([role in (VERB, CONTINUED + VERB) for role in config.labels])
    over_predicate = (first_M <= words_M) & (words_M <= last_M)
    scores_MK = scores_MK.copy()
    if verbs.any():  # a span over the predicate is V or nothing
        scores_MK[:, 1:] += (over_predicate[:, None] & ~verbs) * np.float32(FORBIDDEN)
    candidates = find_candidates(first_M, last_M + 1, scores_MK, temperature=1.0, floor=EVEN)
    kept = candidates.take(decode_spans(candidates, "flat", EVEN))
    arguments: list[Arguments] = [[] for _ in lengths_F]
    for first, end, role, score in zip(kept.first, kept.end, kept.types, kept.scores, strict=True):
        frame = int(np.searchsorted(begins, first, side="right") - 1)
        begin = int(begins[frame])
        arguments[frame].append((config.labels[role], int(first) - begin, int(end) - 1 - begin, float(score)))
    return arguments
