"""Patches move the answer from one sentence's to the other's: all of it, nothing, or what one state carries."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.inference.interpret.patching import patch_pair
from larvatus.models.network import Network
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives import MaskedLMConfig, PermutationLMConfig

FIRST, SECOND = "the river [MASK] was wide", "a bank [MASK] was wide"
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "modern": {"norm": "pre", "positions": "rotary", "gated": True, "segments": 0},
    "shared": {"shared": True, "layers": 3},
}


@pytest.fixture(params=list(KINDS))
def network(request: pytest.FixtureRequest, tiny_model: Any) -> Network:
    made: Network = tiny_model(objectives=(MaskedLMConfig(),), **KINDS[request.param])
    return made


def test_all_words_give_the_other_sentence_and_equal_words_of_the_embeddings_nothing(
    network: Network, tiny_tokenizer: Any
) -> None:
    patched = patch_pair(network, tiny_tokenizer, FIRST, SECOND, answers=("deep", "run"))
    depth = network.encoder.depth
    assert patched.words == ("[CLS]", "the → a", "river → bank", "[MASK]", "was", "wide", "[SEP]")
    residual = patched.effects["residual"]
    assert residual.shape == (depth + 1, 8)
    assert patched.effects["attention"].shape == patched.effects["feedforward"].shape == (depth, 8)
    assert_allclose(residual[:, -1], 1, atol=1e-4)
    assert_allclose(residual[0, [0, 3, 4, 5, 6]], 0, atol=1e-4)  # equal words with equal positions
    assert_allclose(residual[-1], [0, 0, 0, 1, 0, 0, 0, 1], atol=1e-4)  # the head reads the blank only
    assert np.abs(residual[0, 1:3]).min() > 1e-3
    rows = patched.to_dicts()
    assert len(rows) == residual.size + 2 * patched.effects["attention"].size
    assert rows[1] == {
        "site": "residual",
        "layer": 0,
        "place": 2,
        "word": "the → a",
        "effect": pytest.approx(float(residual[0, 1])),
    }
    assert "river → bank" in str(patched)
    assert "<rect" in patched._repr_html_()


@torch.no_grad()
def test_one_patch_equals_the_run_with_that_state_written_into_it(tiny_model: Any, tiny_tokenizer: Any) -> None:
    """By hooks of torch on the model itself, in a batch of one sentence."""
    network = tiny_model(objectives=(MaskedLMConfig(),))
    batches = [encode_batch(tiny_tokenizer, [text.replace("[MASK]", "in")]) for text in (FIRST, SECOND)]
    for batch in batches:
        batch.ids[3] = tiny_tokenizer.mask_id
    first, second = (batch.map(torch.from_numpy) for batch in batches)
    a, b = (tiny_tokenizer.id(word) for word in ("deep", "run"))

    def odds(batch: Any) -> float:
        logits = network.heads["masked-lm"].logits(network.encoder(batch), network.encoder.word_vectors)[3]
        return float(logits[b] - logits[a])

    before, after = odds(first), odds(second)
    held: dict[str, torch.Tensor] = {}
    target = network.encoder.blocks[0].attention.out
    hook = target.register_forward_hook(lambda module, given, out: held.update(out=out.clone()))
    odds(second)
    hook.remove()

    def write(module: Any, given: Any, out: torch.Tensor) -> torch.Tensor:
        out = out.clone()
        out[2] = held["out"][2]
        return out

    hook = target.register_forward_hook(write)
    patched = odds(first)
    hook.remove()
    effects = patch_pair(network, tiny_tokenizer, FIRST, SECOND, answers=("deep", "run")).effects
    assert abs(patched - before) > 1e-3
    assert_allclose(effects["attention"][0, 2], (patched - before) / (after - before), rtol=1e-3)


def test_many_copies_are_read_in_parts(tiny_model: Any, tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_model(objectives=(MaskedLMConfig(),))
    whole = patch_pair(network, tiny_tokenizer, FIRST, SECOND, answers=("deep", "run"))
    monkeypatch.setattr("larvatus.inference.interpret.patching.forward_budget", lambda device: 20)
    parts = patch_pair(network, tiny_tokenizer, FIRST, SECOND, answers=("deep", "run"))
    for site, effects in whole.effects.items():
        assert_allclose(parts.effects[site], effects, atol=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "answers", "message"),
    [
        (
            FIRST,
            "a [MASK] was wide",
            "deep run",
            "do not align word by word: 'the river' at word 1 of the first is 'a'",
        ),
        (FIRST, "the river [MASK] was wide ,", "deep run", "word by word: nothing at word 6 of the first is ','"),
        (FIRST, "the runs [MASK] was wide", "deep run", "token by token: 'river' has 1 tokens and 'runs' has 2"),
        (FIRST, FIRST, "deep run", "both sentences give 'run' and 'deep' the same log-odds"),
        (FIRST, SECOND, "deep turned", "the answer 'turned' is 2 tokens of this vocabulary"),
        (FIRST, SECOND, "deep kangaroo", "the answer 'kangaroo' is unknown to this vocabulary"),
        (FIRST, SECOND, "deep deep", "patching compares two answers"),
        (FIRST, SECOND, "deep", "patching compares two answers"),
        (FIRST, "a bank in was [MASK]", "deep run", "word by word: 'the river' at word 1"),
        ("the [MASK] [MASK] was", SECOND, "deep run", "the first sentence has 2 blanks; mark one with"),
        ("the river", SECOND, "deep run", "nothing to fill"),
        ("[MASK] " + "a " * 40, SECOND, "deep run", "the first sentence has 41 tokens and the model's window has 30"),
    ],
)
def test_pairs_that_cannot_be_patched_are_one_line(
    tiny_model: Any, tiny_tokenizer: Any, first: str, second: str, answers: str, message: str
) -> None:
    network = tiny_model(objectives=(MaskedLMConfig(),))
    with pytest.raises(UsageError) as fault:
        patch_pair(network, tiny_tokenizer, first, second, answers=answers.split())
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


def test_answers_that_are_no_words_are_refused(tiny_model: Any, tiny_tokenizer: Any) -> None:
    network, numbers = tiny_model(objectives=(MaskedLMConfig(),)), cast(Any, (1, 2))
    with pytest.raises(UsageError, match="patching compares two answers"):
        patch_pair(network, tiny_tokenizer, FIRST, SECOND, answers=numbers)


def test_models_without_masked_words_are_refused(tiny_model: Any, tiny_tokenizer: Any) -> None:
    with pytest.raises(ArtefactError, match="no masked-lm head to patch answers with"):
        patch_pair(tiny_model(objectives=()), tiny_tokenizer, FIRST, SECOND, answers=("deep", "run"))
    config = XLNetConfig(layers=2, hidden=16, heads=2, max_positions=32)
    xlnet = Network.build(config, (PermutationLMConfig(),), tiny_tokenizer.size, 0).eval()
    with pytest.raises(UsageError, match="predicts blanks from a query stream"):
        patch_pair(xlnet, tiny_tokenizer, FIRST, SECOND, answers=("deep", "run"))
