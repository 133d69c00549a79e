"""Text of some thirty documents in files, and small recipes that train on it in a second."""

import itertools

import pytest

from larvatus.data.text.embedded import embedded_documents
from tests.data.text.conftest import tokenizers  # noqa: F401  (vocabularies of every kind)

SMALL = (
    "model.layers=1",
    "model.hidden=32",
    "model.heads=2",
    "tokenizer.size=700",
    "batch=16",
    "phases.0.length=32",
    "optimizer.rate=3e-3",
)
BERT = ("bert:phases.1.length=48",)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Files of training and of held-out text."""
    folder = tmp_path_factory.mktemp("texts")
    documents = [d.text.replace("\n\n", "\n") for d in itertools.islice(embedded_documents("train"), 34)]
    (folder / "train.txt").write_text("\n\n".join(documents[:28]), encoding="utf-8")
    held_out = [text for text in documents[28:] if len(text) < 10_000]  # each run is measured on all of it
    (folder / "valid.txt").write_text("\n\n".join(held_out), encoding="utf-8")
    return folder
