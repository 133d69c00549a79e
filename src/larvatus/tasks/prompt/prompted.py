"""A pretrained model with a prompt in place of a head: scores of labels, plain, calibrated, or with examples.

    config = prompt_config(bundle, pattern="{text} It was {blank}.", words={"neg": "terrible", "pos": "great"})
    ready = with_prompt_head(bundle, config)                # the model's own masked-lm head, read at the blank
    prompt_scores(ready, examples, limit=128, scoring=ScoringOptions())

**Words of several tokens** are filled one token at a time (PET with multiple masks, Schick & Schütze 2021b, §3.1):
there are as many blanks as the word has tokens; of the open blanks, the one whose token is likeliest is filled next,
and the text is read again.

    s(y | x) = Σ_j log q(t_{k_j} | P(x) with t_{k_1} … t_{k_{j-1}} filled in)        k_j: the likeliest open blank

So a word is scored given its other tokens, and words of different lengths compare. A word of n tokens needs n passes;
for words of one token `score_sequences` gives the same order of labels.

**Models that generate** (GPT, T5) give a label the likelihood of its word at the blank. A left-to-right model reads
what precedes the blank and scores the word with the rest of the pattern, so the text may be on either side (after the
blank it is the channel model of Min et al. 2022). An encoder–decoder that learned to denoise reads the pattern with its
first sentinel at the blank, and scores sentinel and word.

**Calibration** (Zhao et al. 2021) puts neutral texts into the prompt. The answers to them are its bias p_cf, and
calibrated answers are p / p_cf, set to sum to 1: the log of p_cf is subtracted from scores. Zhao et al. write
softmax(p / p_cf); the order of labels is the same. `score_prompt` scores with it, or with examples in the context.

E examples, n tokens of a word, W words, K labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.metrics.calibration import softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.generation.generator import continuation_scores
from larvatus.models.heads.verbaliser import Demonstration, Verbaliser, VerbaliserConfig
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.classify.classify import predictions, texts_of
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions
from larvatus.tasks.prompt.pattern import (
    LabelWords,
    Pattern,
    PatternTokens,
    Prompts,
    demonstrations,
    demonstrations_that_fit,
    encode_prompts,
    pattern_of,
    truncated_lengths,
    verbaliser,
    words_by_label,
)
from larvatus.tasks.results import Classified
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_as, score_sequences

NO_BLANK = 0
"""In place of the token of a blank, of models that write."""


def check_fills(bundle: Bundle) -> None:
    """Refuse a model that cannot fill blanks, or whose blanks are filled by another."""
    if "masked-lm" in bundle.network.objectives or "verbaliser" in bundle.network.objectives:
        return
    if bundle.network.generator is not None:
        raise ArtefactError(
            f"{bundle.path} fills blanks by its generator, which is a separate model; prompt {bundle.path}/generator"
        )
    raise ArtefactError(
        f"{bundle.path} has no masked-lm head to read a blank with, nor a head that continues texts; prompt a model "
        "pretrained with masked-lm, causal-lm or denoising"
    )


def check_trains(bundle: Bundle) -> None:
    """Refuse a model whose prompt cannot be trained: generating models are prompted, or fine-tuned to classify."""
    if is_generative(bundle):
        raise ArtefactError(
            f"{bundle.path} continues texts: it is prompted without training, or fine-tuned by finetune classify; a "
            "prompt is trained of a model pretrained with masked-lm"
        )
    check_fills(bundle)


def prompt_config(
    bundle: Bundle, *, pattern: str, words: LabelWords, labels: Sequence[str] | None = None, pair: bool = False
) -> VerbaliserConfig:
    """A prompt for a model that fills blanks, or writes; `labels` in their order, where the words do not say it."""
    if not is_generative(bundle):
        check_fills(bundle)
    read = Pattern.read(pattern, pair=pair)
    mask = NO_BLANK if is_generative(bundle) else None
    config = verbaliser(bundle.tokenizer, read, labels=labels or tuple(words_by_label(words)), words=words, mask=mask)
    return msgspec.structs.replace(config, in_turn=config.blanks > 1)


def with_prompt_head(bundle: Bundle, config: VerbaliserConfig) -> Bundle:
    """The model with the prompt as its head: nothing of it is new."""
    return attach_head(bundle, config, seed=0)[0]


def prompt_of(bundle: Bundle) -> Verbaliser:
    """The prompt of a model that has one."""
    return head_as(bundle.network, Verbaliser, "classify through a blank", str(bundle.path))


def prompt_scores(bundle: Bundle, examples: Sequence[TextExample], *, limit: int, scoring: ScoringOptions) -> Floats:
    """[E, K] scores of the labels."""
    head = prompt_of(bundle)
    if head.config.in_turn and head.config.blanks > 1:
        return multi_mask_scores(bundle.network, bundle.tokenizer, examples, limit=limit, scoring=scoring)
    prompts = encode_prompts(bundle.tokenizer, head.config, examples, limit=limit)
    return score_sequences(bundle.network, prompts.sequences, scoring)


@torch.inference_mode()
def multi_mask_scores(
    model: Network, tokenizer: Tokenizer, examples: Sequence[TextExample], *, limit: int, scoring: ScoringOptions
) -> Floats:
    """[E, K] scores of the labels."""
    model.eval()
    head = head_as(model, Verbaliser, "classify through a blank")
    predictor = MaskedPredictor(model.encoder, head.words)
    by_size: dict[int, Sequences] = {}
    columns = []
    for word in head.config.tokens():
        if len(word) not in by_size:
            prompts = encode_prompts(tokenizer, head.config, examples, limit=limit, blanks=len(word))
            by_size[len(word)] = prompts.sequences
        columns.append(_word(predictor, by_size[len(word)], np.array(word), mask=head.config.mask, scoring=scoring))
    scores_EW = torch.from_numpy(np.stack(columns, 1)).to(torch.float32)
    return np.asarray(head.of_labels(scores_EW).numpy(), np.float32)


def _word(
    predictor: MaskedPredictor, sequences: Sequences, word: Ints, *, mask: int, scoring: ScoringOptions
) -> npt.NDArray[np.float64]:
    """[E] of one word."""
    count, size = len(sequences), len(word)
    ids = sequences.ids.copy()
    places_En = np.flatnonzero(ids == mask).reshape(count, size)
    open_En = np.ones((count, size), np.bool_)
    totals = np.zeros(count)
    for _ in range(size):
        filled = dataclasses.replace(sequences, ids=ids)
        log_En = _log_probabilities(predictor, filled, places_En, word, scoring)
        best = np.where(open_En, log_En, -np.inf).argmax(1)
        rows = np.arange(count)
        totals += log_En[rows, best]
        ids[places_En[rows, best]] = word[best]
        open_En[rows, best] = False
    return totals


def _log_probabilities(
    predictor: MaskedPredictor, sequences: Sequences, places_En: Ints, word: Ints, scoring: ScoringOptions
) -> npt.NDArray[np.float64]:
    """[E, n] log-probability of each token of the word at its blank, given the current text."""
    firsts = np.cumsum(sequences.lengths) - sequences.lengths
    within_En = places_En - firsts[:, None]
    result = np.zeros(places_En.shape)
    for chosen in batches_by_length(sequences, scoring.budget):
        tokens = sequences.batch(chosen)
        starts = np.cumsum(tokens.lengths) - tokens.lengths
        at = torch.from_numpy((starts[:, None] + within_En[chosen]).ravel()).to(scoring.device)
        asked = torch.from_numpy(np.tile(word, len(chosen))).to(scoring.device)
        with scoring.autocast():
            questions = TokenQueries(torch.arange(len(at), device=at.device), asked)
            states_ND = predictor.encoder(on_device(tokens, scoring.device), limit=int(tokens.lengths.max()))
            log_Q = predictor.of_vectors(states_ND.index_select(0, at), questions)
        result[chosen] = log_Q.double().cpu().numpy().reshape(len(chosen), -1)
    return result


WRITES = ("causal-lm", "denoising")
"""Objectives that teach a model to write."""
SENTINELS = ("<extra_id_0>", "<extra_id_1>")
"""Sentinels of T5: the one in place of a masked span, and the one that ends its text."""


def is_generative(bundle: Bundle) -> bool:
    """Whether a model continues texts."""
    return any(name in bundle.network.objectives for name in WRITES)


def continuation_prompt_scores(
    bundle: Bundle, config: VerbaliserConfig, examples: Sequence[TextExample], *, limit: int
) -> tuple[Prompts, Floats]:
    """How the examples are read, and scores of their labels [E, K]."""
    asking = _ContinuationEncoder.of(bundle, config, pair=bool(examples) and examples[0].pair is not None, limit=limit)
    prompts, asked, continuations = asking.pairs(bundle.tokenizer, examples)
    scores = continuation_scores(bundle.network, asked, continuations)
    scores_EW = np.array(scores, np.float64).reshape(len(examples), -1)
    counts = [config.owners.count(label) for label in range(len(config.labels))]
    share_WK = np.array([[(owner == n) / counts[n] for n in range(len(counts))] for owner in config.owners])
    scores_EK = scores_EW @ share_WK - (np.array(config.offsets) if config.offsets else 0.0)
    return prompts, scores_EK.astype(np.float32)


class _ContinuationEncoder:
    """A pattern for one model: the prompt before the blank, and the continuation that is scored."""

    def __init__(self, config: VerbaliserConfig, template: PatternTokens, shots: list[Ints], room: int) -> None:
        self.config, self.template, self.shots, self.room = config, template, shots, room
        self.sentinels: tuple[int, ...] = ()
        self.opening: Ints = np.empty(0, np.int64)
        self.closing: Ints = np.empty(0, np.int64)

    @classmethod
    def of(cls, bundle: Bundle, config: VerbaliserConfig, *, pair: bool, limit: int) -> _ContinuationEncoder:
        tokenizer, encoder = bundle.tokenizer, bundle.network.encoder
        template = PatternTokens.of(tokenizer, pattern_of(config, pair=pair))
        closed = bool(getattr(encoder, "closes_prompts", False))
        gaps = [np.array(gap, np.int64) for gap in tokenizer.template.single.gaps]
        room = limit - len(gaps[0]) - (len(gaps[-1]) if closed else 0)
        asking = cls(config, template, demonstrations(tokenizer, config, template), room)
        asking.opening = gaps[0]
        if closed:
            ids = [tokenizer.id(name) for name in SENTINELS]
            asking.sentinels = tuple(id for id in ids if id is not None)
            asking.closing = gaps[-1]
        if template.fixed + config.blanks + 2 > room:
            raise UsageError(
                f"the pattern takes {template.fixed + config.blanks:,} of the {room:,} tokens that the model reads at "
                "once; give a shorter one"
            )
        return asking

    def pairs(self, tokenizer: Tokenizer, examples: Sequence[TextExample]) -> tuple[Prompts, list[Ints], list[Ints]]:
        """Prompt and continuation for each example and word, and how much of the examples was read."""
        before = self.template.fixed + self.config.blanks
        asked: list[Ints] = []
        continuations: list[Ints] = []
        tokens, read, shown = [], [], []
        for texts in self.template.text_ids(tokenizer, examples):
            sizes = truncated_lengths([len(text) for text in texts], self.room - before)
            cut = [text[:size] for text, size in zip(texts, sizes, strict=True)]
            shots = demonstrations_that_fit(self.shots, self.room - before - sum(sizes))
            for word in self.config.tokens():
                prompt, continuation = self._split(cut, np.array(word, np.int64))
                asked.append(np.concatenate([self.opening, *shots, prompt, self.closing]).astype(np.int64))
                continuations.append(continuation)
            shown.append(len(shots))
            tokens.append(before + sum(map(len, texts)))
            read.append(before + sum(sizes))
        empty, count = np.empty(0, np.int64), len(tokens)
        sequences = Sequences(
            ids=empty, segments=empty, lengths=empty, parts=np.ones(count, np.int64),
            tokens=np.array(tokens, np.int64), read=np.array(read, np.int64),
        )  # fmt: skip
        return Prompts(sequences, np.array(shown, np.int64), len(self.shots)), asked, continuations

    def _split(self, texts: Sequence[Any], word: Ints) -> tuple[Ints, Ints]:
        if len(self.sentinels) == len(SENTINELS):
            first, second = self.sentinels
            return self.template.ids(texts, np.array([first])), np.array([first, *word.tolist(), second], np.int64)
        nothing = np.array([-1], np.int64)  # no token: position of the blank
        whole = self.template.ids(texts, nothing)
        place = int(np.flatnonzero(whole == -1)[0])
        return whole[:place], np.concatenate([word, whole[place + 1 :]])


# Zero-shot prompts: plain, calibrated, or with examples in the context.

NEUTRAL_TEXTS = ("N/A", "")
"""Two of the three of Zhao et al.; their third, a mask token, would be a second blank here."""
_PLACE = Place("a neutral text", 1)


@dataclass(frozen=True, eq=False)
class PromptScores:
    """Scores of a prompt on some examples."""

    config: VerbaliserConfig
    """With the offsets that calibration found."""
    prompts: Prompts
    scores: Floats  # [E, K]

    def answers(self, examples: Sequence[TextExample]) -> list[Classified]:
        rows = np.asarray(softmax(self.scores), np.float32)
        return predictions(self.config, texts_of(examples), self.prompts.sequences, rows)


def with_demonstrations(config: VerbaliserConfig, shown: Sequence[Demonstration]) -> VerbaliserConfig:
    """The config with labelled examples in the context."""
    for _, _, label in shown:
        if label not in config.labels:
            near = did_you_mean(label, config.labels)
            raise UsageError(f"a demonstration is labelled {label!r}, which has no word{near}")
    return msgspec.structs.replace(config, demonstrations=tuple(shown))


def score_prompt(
    bundle: Bundle,
    config: VerbaliserConfig,
    examples: Sequence[TextExample],
    *,
    neutral: Sequence[str] = (),
    length: int | None = None,
    scoring: ScoringOptions,
) -> PromptScores:
    """Scores of the labels; calibrated where neutral texts are given."""
    limit = WindowOptions.of(bundle, length=length).limit
    ready = bundle if is_generative(bundle) else with_prompt_head(bundle, config)
    ready.network.to(scoring.device)
    prompts, scores = _scores(ready, config, examples, limit, scoring)
    if not neutral:
        return PromptScores(config, prompts, scores)
    pair = bool(examples) and examples[0].pair is not None
    empty = [TextExample(text, text if pair else None, None, _PLACE) for text in neutral]
    offsets = neutral_offsets(_scores(ready, config, empty, limit, scoring)[1])
    return PromptScores(msgspec.structs.replace(config, offsets=offsets), prompts, subtract_offsets(scores, offsets))


def _scores(
    ready: Bundle, config: VerbaliserConfig, examples: Sequence[TextExample], limit: int, scoring: ScoringOptions
) -> tuple[Prompts, Floats]:
    if is_generative(ready):
        return continuation_prompt_scores(ready, config, examples, limit=limit)
    prompts = encode_prompts(ready.tokenizer, config, examples, limit=limit)
    return prompts, prompt_scores(ready, examples, limit=limit, scoring=scoring)


def neutral_offsets(scores_NK: Floats | Doubles) -> tuple[float, ...]:
    """log of the mean probability that neutral texts give each label.

    >>> [round(offset, 4) for offset in neutral_offsets(np.log([[0.8, 0.2], [0.6, 0.4]]))]
    [-0.3567, -1.204]
    """
    return tuple(np.log(softmax(scores_NK.astype(np.float64)).mean(0)).tolist())


def subtract_offsets(scores_EK: Floats, offsets: Sequence[float]) -> Floats:
    """Scores whose softmax is p / p_cf, set to sum to 1."""
    return np.asarray(scores_EK - np.asarray(offsets), np.float32)
