"""What a plan measures: a vocabulary of the text's sample, the size of the model, and the speed of its steps here.

sample = VocabularySample.of(scan, recipe)
sample.tokens_per_word, sample.unigram
training_speed(scan, recipe, sample.tokenizer, Runtime.here())        # tokens a second
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from larvatus.core.errors import DataError
from larvatus.data.text.documents import Document
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.evaluation.compare.word_nll import MaskedPassages
from larvatus.evaluation.planning.loss import unigram_word_nll
from larvatus.evaluation.planning.scan import TextScan, count_words
from larvatus.evaluation.speed.timing import time_in_turns
from larvatus.evaluation.speed.training import LarvatusTraining, model_of_recipe
from larvatus.models.network import Network
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.recipes import Recipe
from larvatus.training.engine.reporter import Reporter, flops_per_token
from larvatus.training.engine.settings import Runtime

MEASURED_S = 3.0
"""Seconds for which steps are timed."""


@dataclass(frozen=True, kw_only=True)
class VocabularySample:
    """A vocabulary learned from the sample of a text, and what it costs."""

    tokenizer: Tokenizer
    tokens_per_word: float
    unigram: float

    @classmethod
    def of(cls, scan: TextScan, recipe: Recipe) -> VocabularySample:
        tokenizer = train_vocabulary(scan.training, recipe.tokenizer, allow_smaller=True)
        tokens = sum(len(ids) for ids in tokenizer.encode_fast(list(scan.held_out)))
        words = sum(map(count_words, scan.held_out))
        documents = [Document(text, "sample") for text in scan.held_out]
        unigram = unigram_word_nll(tokenizer, MaskedPassages.of(documents, language=scan.language))
        if unigram is None or not words:
            raise DataError("the text has no passage of eight words or more to plan with; give whole sentences")
        return cls(tokenizer=tokenizer, tokens_per_word=tokens / words, unigram=unigram)


def empty_network(recipe: Recipe, vocabulary: int) -> Network:
    """A network without values, for its size."""
    with empty_weights():
        return Network(recipe.model, recipe.objectives, vocabulary)


def operations_per_token(recipe: Recipe, vocabulary: int) -> float:
    """Training operations of a token."""
    return flops_per_token(empty_network(recipe, vocabulary), recipe, max(phase.length for phase in recipe.phases))


def training_speed(scan: TextScan, recipe: Recipe, tokenizer: Tokenizer, runtime: Runtime) -> float:
    """Tokens a second of training steps on this machine."""
    length = recipe.phases[0].length
    supported = msgspec.structs.replace(recipe.tokenizer, size=tokenizer.size)
    measured = msgspec.structs.replace(recipe, tokenizer=supported)
    with tempfile.TemporaryDirectory(prefix="larvatus-") as aside:
        text = Path(aside) / "sample.txt"
        text.write_text("\n\n".join((*scan.training, *scan.held_out)) + "\n", encoding="utf-8")
        model = model_of_recipe(measured, corpus=str(text), folder=Path(aside) / "run", reporter=Reporter())
        tokens = min(recipe.batch * length, runtime.microbatch)
        batches = model.full_rows(length=length, tokens=tokens)
        training = LarvatusTraining(model, runtime, batches, length=length)
        timing = time_in_turns({"step": training.step}, device=runtime.device, seconds=MEASURED_S, warm=2)["step"]
    return sum(batch.tokens.size for batch in batches) / len(batches) / timing.median
