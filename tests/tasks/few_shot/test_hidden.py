"""PET's auxiliary loss: unlabelled texts in the pattern, partly hidden, learnt beside the few examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.labelled.records import Place, TextExample
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.nn.device import on_device
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.few_shot.results import FewShotTraining
from larvatus.tasks.few_shot.training import MaskedPrompts
from larvatus.tasks.prompt.prompted import prompt_config
from larvatus.tasks.prompt.task import labelled_prompts
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.settings import Runtime
from tests.made_up import sentences
from tests.tasks.test_run import assert_bit_equal

WORDS = {"wet": "river", "dry": "homework"}
PATTERN = "{text} was {blank} ."
SHARE = 0.3


def examples(count: int, seed: int, *, labelled: bool = True) -> list[TextExample]:
    texts = [" ".join(words) for words in sentences(count, seed)]
    labels = [("wet" if "river" in text else "dry") if labelled else None for text in texts]
    return [
        TextExample(text, None, label, Place("t", n)) for n, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


@pytest.fixture
def still(tiny_model: Any, save_tiny: Any, tmp_path: Path) -> Bundle:
    """Without dropout."""
    return load_bundle(save_tiny(tmp_path / "tiny", tiny_model(seed=3, dropout=0.0, attention_dropout=0.0)))


def hidden_of(bundle: Bundle, texts: int = 5) -> MaskedPrompts:
    config = prompt_config(bundle, pattern=PATTERN, words=WORDS)
    return MaskedPrompts.of(bundle, config, examples(12, 5, labelled=False), share=SHARE, texts=texts, limit=32)


def test_texts_are_read_in_the_pattern_and_their_blank_is_no_target(still: Bundle) -> None:
    beside, mask = hidden_of(still), still.tokenizer.mask_id
    seen = []
    for step in range(12):
        batch = beside.batch(step, seed=3)
        targets = batch.targets[MaskedTokens]
        assert beside.count(batch) == targets.count >= 5
        whole = batch.tokens.ids.copy()
        whole[targets.places] = targets.ids
        assert (whole == mask).sum() == 5  # the blank of each, and nothing else once what was hidden is back
        assert mask not in targets.ids
        seen += [tuple(row) for row in np.split(whole, np.cumsum(batch.tokens.lengths)[:-1])]
    assert len(set(seen[:12])) == len(set(seen[12:24])) == 12  # each epoch reads all
    assert seen[:12] != seen[12:24]
    first, again, other = (beside.batch(step, seed=seed) for step, seed in ((4, 3), (4, 3), (4, 9)))
    assert np.array_equal(first.tokens.ids, again.tokens.ids)
    assert not np.array_equal(first.tokens.ids, other.tokens.ids)


@pytest.mark.parametrize("microbatch", [10_000, 40])
def test_the_gradient_is_that_of_both_losses_by_their_shares(still: Bundle, microbatch: int) -> None:
    config, beside = prompt_config(still, pattern=PATTERN, words=WORDS), hidden_of(still)
    gradients = {}
    for name, given in (("both", beside), ("alone", None)):
        model = attach_head(still, config, seed=0)[0].network
        _, data = labelled_prompts(still, examples(8, 1), config, WindowOptions.of(still, length=None))
        settings = TrainConfig(epochs=1, batch=8, clip=0.0, rate=1e-3)
        runtime = Runtime(microbatch=microbatch)
        training = Trainer(model, data, FineTuneArguments(config=settings, runtime=runtime, auxiliary=given), seed=3)
        training.optimizer.step = training.optimizer.zero_grad = lambda *_, **__: None  # type: ignore[method-assign]
        training.fetch()
        with training.clock:
            training.step()
        gradients[name] = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model = attach_head(still, config, seed=0)[0].network
    batch = on_device(beside.batch(0, seed=3), "cpu")
    targets, words = batch.targets[MaskedTokens], model.heads["verbaliser"].words
    logits = words.logits(model.encoder(batch.tokens)[targets.places], model.encoder.word_vectors)
    F.cross_entropy(logits, targets.ids).backward()  # the naive one
    naive = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert naive.keys() >= gradients["alone"].keys()
    for name, both in gradients["both"].items():
        alone = gradients["alone"].get(name, torch.zeros_like(both))
        torch.testing.assert_close(both, (1 - SHARE) * alone + SHARE * naive[name], rtol=1e-3, atol=1e-6)
    assert any((SHARE * naive[name]).abs().max() > 1e-3 for name in naive)


def test_it_is_of_pet_and_of_an_encoder_that_learns(still: Bundle) -> None:
    with pytest.raises(UsageError, match="--mlm-weight needs an encoder that is trained"):
        FewShotTraining(mlm_weight=1e-4, trained="head")
    with pytest.raises(UsageError, match="mlm_weight = 2"):
        FewShotTraining(mlm_weight=2.0)
    rows = [(example.text, example.label) for example in examples(8, 1)]
    with pytest.raises(UsageError, match="--mlm-weight is of PET's patterns: give --method pet"):
        lv.prompt(still.path, words=WORDS, patterns=PATTERN, data=rows, train=rows, k=1, mlm_weight=1e-4)


def test_a_classifier_of_pet_learns_otherwise_with_it_and_always_the_same(still: Bundle, tmp_path: Path) -> None:
    rows = [(example.text, example.label) for example in examples(8, 1)]
    texts = [example.text for example in examples(12, 5, labelled=False)]
    quick: dict[str, Any] = {"steps": 4, "distil_steps": 4, "batch": 4, "rate": 0.01, "device": "cpu", "k": 0}
    for name, weight in (("without", {}), ("zero", {"mlm_weight": 0.0}), ("with", {"mlm_weight": 0.2})):
        out = tmp_path / name
        lv.prompt(still.path, words=WORDS, patterns=PATTERN, train=rows, unlabelled=texts, out=out, **quick, **weight)
    lv.prompt(
        still.path, words=WORDS, patterns=PATTERN, train=rows, unlabelled=texts, out=tmp_path / "again", **quick,
        mlm_weight=0.2,
    )  # fmt: skip
    assert_bit_equal(tmp_path / "without", tmp_path / "zero")
    assert_bit_equal(tmp_path / "with", tmp_path / "again")
    with pytest.raises(AssertionError):
        assert_bit_equal(tmp_path / "with", tmp_path / "zero")
