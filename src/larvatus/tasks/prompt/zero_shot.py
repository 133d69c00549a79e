"""Zero-shot prompting of a pretrained model: plain, calibrated, or with examples in the context.

    asked = ask(bundle, config, examples, neutral=("N/A", ""), scoring=ScoringOptions())
    asked.scores, asked.prompts.describe()

Calibration (Zhao et al. 2021) asks the prompt about neutral texts. What it says of them is its bias p_cf, and answers
are p / p_cf, set to sum to 1: of scores, its log is subtracted. Zhao et al. write softmax(p / p_cf); the order of
labels is the same. E examples, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from larvatus.core.arrays import Doubles, Floats
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.data.labelled.records import Place, TextExample
from larvatus.metrics.calibration import softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import Demonstration, VerbaliserConfig
from larvatus.tasks.classify.classify import predictions, texts_of
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.prompt.encode import Prompts, encode_prompts
from larvatus.tasks.prompt.prompted import continuation_prompt_scores, is_generative, prompt_scores, with_prompt_head
from larvatus.tasks.results import Classified
from larvatus.tasks.scoring import ScoringOptions

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
