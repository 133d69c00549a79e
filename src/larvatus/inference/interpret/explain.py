"""Why a model predicts what it does: a prediction attributed to the words of its text.

    explain(model, "The keys to the cabinet [MASK] on the table.").words[1].scores["integrated-gradients"]
    explain(classifier, "A dull film.", OutcomeChoice(target="negative"))

A fine-tuned model is explained by its head, any other by the fill of a blank. The methods are in `attributions.py`;
`evaluation/interpretation/faithfulness.py` measures which of them to trust on given texts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.ranges import digits
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.inference.cloze.fill import allowed_tokens, read_blanks, surface
from larvatus.inference.interpret.attributions import ExplainOptions, attribute, masked_scores
from larvatus.inference.interpret.explanation import AttributedWord, Explanation
from larvatus.inference.interpret.lens import check_window
from larvatus.inference.interpret.tuned_lens import masked_lm_predictor
from larvatus.models.loaded import LoadedModel
from larvatus.models.network import int8_weights
from larvatus.models.nn.encoder import Encoder
from larvatus.tasks.inputs import Input, InputPlace
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice, words_with_tokens
from larvatus.tasks.registry import is_finetuned, task_of

GRADIENTS = ("integrated-gradients", "gradient-x-input")


def explain(
    model: LoadedModel,
    given: Input,
    choice: OutcomeChoice = OutcomeChoice(),
    options: ExplainOptions = ExplainOptions(),
    *,
    number: int = 1,
) -> Explanation:
    """A prediction attributed to words by each method. `number` is that of the text, for messages."""
    check_explainable(model, options)
    return explained(model, outcome_of(model, given, choice, number=number), options)


def outcome_of(model: LoadedModel, given: Input, choice: OutcomeChoice, *, number: int = 1) -> ExplainedOutcome:
    """The prediction to explain: of its task for a fine-tuned model, the fill of a blank for any other."""
    if not is_finetuned(model.bundle):
        return fill_outcome(model, given, choice)
    task = task_of(model.bundle)
    return task.outcome(model.bundle, task.example(given, InputPlace("text", number)), choice)


def check_explainable(model: LoadedModel, options: ExplainOptions) -> None:
    """Refuse models whose words cannot be masked, or whose numbers have no gradients."""
    name = model.bundle.path
    if model.tokenizer.id(model.tokenizer.special.mask) is None or "causal-lm" in model.network.heads:
        raise ArtefactError(
            f"{name} has no mask token to put in place of words, or reads left to right; explain a masked model"
        )
    if int8_weights(model.network) and set(options.chosen).intersection(GRADIENTS):
        raise UsageError(f"{name} has int8 weights, which have no gradients; load it without quantise")


def explained(model: LoadedModel, outcome: ExplainedOutcome, options: ExplainOptions) -> Explanation:
    """An outcome attributed to words by each method."""
    if not outcome.spans:
        raise UsageError("the text has no word next to its blank to attribute the prediction to; give more text")
    mask, none = model.tokenizer.mask_id, np.zeros((1, len(outcome.spans)), np.bool_)
    attributions = [attribute(outcome, method, options, mask) for method in options.chosen]
    words = tuple(
        AttributedWord(
            text=outcome.texts[part][start:end],
            part=part,
            start=start,
            end=end,
            scores={each.method: float(each.scores[number]) for each in attributions},
        )
        for number, (part, start, end) in enumerate(outcome.spans)
    )
    integrated = next((each for each in attributions if each.gap is not None), None)
    return Explanation(
        texts=outcome.texts,
        label=outcome.label,
        score=float(masked_scores(outcome, none, mask)[0]),
        is_number=outcome.is_number,
        baseline=options.baseline if set(options.chosen).intersection(GRADIENTS) else None,
        words=words,
        gap=None if integrated is None else integrated.gap,
        steps=None if integrated is None else integrated.steps,
        tolerance=options.tolerance,
    )


def fill_outcome(model: LoadedModel, given: Input, choice: OutcomeChoice) -> ExplainedOutcome:
    """The top fill of a blank, or the token that was chosen, as a number to explain."""
    if not isinstance(given, str):
        raise UsageError(f"{model.bundle.path} fills the blanks of a text; give one text, not {type(given).__name__}")
    tokenizer = model.tokenizer
    predictor = masked_lm_predictor(model.network, tokenizer, str(model.bundle.path))
    blanks = read_blanks(given, tokenizer)
    check_window(len(blanks.ids), predictor.longest_text(tokenizer))
    number = 1 if choice.at is None else choice.at if isinstance(choice.at, int) else digits(choice.at)
    if number is None or not 1 <= number <= len(blanks.places):
        raise UsageError(f"there is no blank {choice.at!r}: the text has blanks 1 to {len(blanks.places)}")
    place = blanks.places[number - 1] + tokenizer.template.single.opening

    def copies(count: int) -> TrainingBatch[np.ndarray]:
        batch: TokenBatch[np.ndarray] = wrap_batch(tokenizer, [[(blanks.ids, blanks.words)]] * count)
        return TrainingBatch(tokens=batch, targets={})

    def logs(encoder: Encoder, batch: TrainingBatch[Tensor]) -> Tensor:
        z_STD = encoder(batch.tokens).unflatten(0, (batch.tokens.count, -1))
        return torch.log_softmax(predictor.head.logits(z_STD[:, place], predictor.words_VE).float(), -1)

    with torch.inference_mode():
        batch = copies(1).map(lambda array: torch.from_numpy(array).to(predictor.device))
        log_V = logs(predictor.encoder, batch)[0]
    id = _token(model, choice.target, log_V)
    open_words = blanks.words[list(blanks.places)]
    closed = np.where(np.isin(blanks.words, open_words), NO_WORD, blanks.words)
    every = [(0, start, end) for start, end in blanks.word_spans.tolist()]
    words, spans = words_with_tokens(tokenizer.template.single.fill(NO_WORD, closed), every)
    return ExplainedOutcome(
        texts=(given,),
        label=surface(tokenizer, id),
        spans=spans,
        words=words,
        copies=copies,
        encoder=predictor.encoder,
        score=lambda encoder, batch: logs(encoder, batch)[:, id],
        reads=np.array([place]),
    )


def _token(model: LoadedModel, target: str | None, log_V: Tensor) -> int:
    """The chosen token, or the most probable whole word."""
    tokenizer = model.tokenizer
    if target is None:
        allowed = torch.zeros(len(log_V), dtype=torch.bool)
        allowed[: tokenizer.size] = torch.from_numpy(allowed_tokens(tokenizer, "words"))
        return int(log_V.cpu().masked_fill(~allowed, -torch.inf).argmax())
    ids = tokenizer.encode(f" {target}").ids if tokenizer.style == "Ġ" else tokenizer.encode(target).ids
    if len(ids) != 1 or int(ids[0]) == tokenizer.id(tokenizer.special.unk):
        raise UsageError(f"{target!r} is not one token of the vocabulary, and a blank holds one; choose another target")
    return int(ids[0])
