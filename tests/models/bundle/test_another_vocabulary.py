"""Every family that `transformers` saves takes another vocabulary, is trained in it, and is loaded by it again."""

from pathlib import Path

import pytest
import torch

import larvatus as lv
from larvatus.data.text.shared_tokens import shared_tokens
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.recipes import read_recipe
from tests.models.bundle.families import FAMILIES, Make
from tests.models.bundle.theirs import equal, transformers

NOUNS, VERBS = ("lumi", "tavo", "siru", "melan"), ("kamo", "rilta", "pesuna")
LINES = [f"boka {verb} ne {noun}, river bank {noun}." for verb in VERBS for noun in NOUNS]
RECIPES = {"bert": "bert", "albert": "albert", "electra": "electra", "modernbert": "modern"}
QUICK = ("albert",)
"""Factorised and tied embeddings; `make proof` tries the others."""


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.proof) for name in FAMILIES]
)
def test_a_family_in_another_vocabulary(
    family: str, theirs: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = theirs(family, "ForPreTraining" if family in ("electra", "albert") else "ForMaskedLM")
    (tmp_path / "new.txt").write_text("\n\n".join("\n".join(LINES) for _ in range(60)))
    recipe = RECIPES.get(family, "roberta")
    lv.pretrain(
        recipe,
        corpus=tmp_path / "new.txt",
        out=tmp_path / "run",
        start=directory,
        vocabulary="new",
        embedding_share=0.5,
        steps=2,
        settings=["batch=2", *(f"phases.{number}.length=16" for number in range(len(read_recipe(recipe).phases)))],
        quiet=True,
    )
    old, new = load_bundle(directory), load_bundle(tmp_path / "run")
    assert new.tokenizer.kind == old.tokenizer.kind
    shared = shared_tokens(new.tokenizer, old.tokenizer)
    assert 5 < (shared >= 0).sum() < new.tokenizer.size
    before, after = old.network.encoder.word_vectors, new.network.encoder.word_vectors
    assert after.shape == (new.tokenizer.size, before.shape[1])
    assert not torch.equal(after[shared >= 0], before[shared[shared >= 0]])  # trained
    torch.testing.assert_close(after[shared >= 0], before[shared[shared >= 0]], rtol=0, atol=0.02)
    kind = transformers.AutoModelForPreTraining if family == "electra" else transformers.AutoModelForMaskedLM
    monkeypatch.setattr("tests.models.bundle.theirs.TEXTS", LINES[:4])  # the others are too long in letters
    equal(new.network, kind.from_pretrained(tmp_path / "run"), new.tokenizer)
