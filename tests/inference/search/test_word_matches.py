"""Words of passages matched with words of a query, against a loop over all pairs in float64."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.inference.model.adapters import add_adapter
from larvatus.inference.search.late_index import WEAKEST, match_words
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.models.bundle.weights import write_tensors
from larvatus.models.nn.lora import TARGETS, LoRAConfig, add_lora

QUERY = "the river bank ?"
PASSAGES = ["The bank of the river was deep.", "Please turn your homework in !", "A river — a wide river bank."]


@pytest.fixture(scope="module")
def plain(tiny_directory):
    return lv.load(tiny_directory, device="cpu")


@pytest.fixture(scope="module")
def adapted(tiny_directory, tmp_path_factory):
    """The same model with a sentence adapter."""
    folder = tmp_path_factory.mktemp("matched")
    directory = shutil.copytree(tiny_directory, folder / "adapted")
    encoder = load_bundle(directory).network.encoder
    add_lora(encoder, LoRAConfig(rank=2, alpha=4.0, targets=TARGETS), seed=1)
    random = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.randn(x.shape, generator=random) for name, x in encoder.state_dict().items() if ".lora." in name
    }
    tensors["dense.weight"] = torch.eye(encoder.width)
    write_tensors(folder / "trained.safetensors", {name: tensor.half() for name, tensor in tensors.items()})
    add_adapter(folder / "trained.safetensors", directory, alpha=4.0)
    return lv.load(directory, device="cpu")


@pytest.fixture(params=["plain", "adapted"])
def model(request):
    return request.getfixturevalue(request.param)


def test_matches_are_those_of_a_loop_over_all_pairs(model):
    rarity = {"the": 0.5, "river": 1.0, "bank": 0.9}.__getitem__
    given = match_words(model, QUERY, PASSAGES, rarity=rarity)
    assert [QUERY[start:end] for start, end in given.words] == ["the", "river", "bank"]
    encoder = sentence_bundle(load_bundle(model.bundle.path)).network.encoder  # with the adapter merged, if any
    asked, *read = embed_texts(encoder, model.tokenizer, [QUERY, *PASSAGES], EmbedOptions(unit="word"))
    kept = [[n for n, word in enumerate(each.units) if any(c.isalnum() for c in word)] for each in read]
    rows = [each.vectors[n].astype(np.float64) for each, places in zip(read, kept, strict=True) for n in places]
    mean = sum(rows) / len(rows)
    for each, places, matches in zip(read, kept, given.passages, strict=True):
        expected = []
        for n in places:
            scores = []
            for j, word in enumerate(["the", "river", "bank"]):
                p, q = each.vectors[n] - mean, asked.vectors[j] - mean
                scores.append(rarity(word) * float(p @ q) / (math.sqrt(p @ p) * math.sqrt(q @ q)))
            if max(scores) >= WEAKEST:
                expected.append((*each.spans[n].tolist(), scores.index(max(scores)), max(scores)))
        assert [(m.start, m.end, m.query) for m in matches] == [each[:3] for each in expected]
        assert [m.strength for m in matches] == pytest.approx([each[3] for each in expected], abs=1e-5)
    assert any(given.passages)


def test_words_are_matched_by_the_encoder_of_sentence_vectors(plain, adapted):
    assert match_words(plain, QUERY, PASSAGES) != match_words(adapted, QUERY, PASSAGES)


def test_texts_without_words_match_nothing(model):
    assert match_words(model, "?", PASSAGES).passages == ((), (), ())
    assert match_words(model, QUERY, ["!", "…"]).passages == ((), ())
    assert match_words(model, QUERY, []).passages == ()
