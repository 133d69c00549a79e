"""Our vectors behind the encoder protocol of `mteb`, with tasks made here where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import larvatus as lv
from larvatus.core.errors import UsageError

PAIRS = [("the river was deep", "the river was wide"), ("the bank", "a town"), ("the water ran", "the homework")] * 4
SCORES = [float(number % 5) for number in range(len(PAIRS))]


@pytest.fixture
def model(tiny_directory):
    return lv.load(tiny_directory, device="cpu")


def test_batches_give_the_vectors_of_their_texts(model, tiny_directory):
    encoder = lv.MtebEncoder(model)
    batches = [{"text": ["the river", "the town"], "title": ["", ""]}, {"text": ["a bank"]}]
    vectors = encoder.encode(batches, task_metadata=None, hf_split="test", hf_subset="default", prompt_type=None)
    assert np.array_equal(vectors, model.embed(["the river", "the town", "a bank"]))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert encoder.similarity(vectors, vectors[:2]) == pytest.approx(unit @ unit[:2].T, abs=1e-6)
    assert encoder.similarity_pairwise(vectors[:2], vectors[1:]) == pytest.approx(
        (unit[:2] * unit[1:]).sum(1), abs=1e-6
    )
    named = lv.MtebEncoder(str(tiny_directory), None, device="cpu")
    assert np.array_equal(named.encode([{"text": ["a bank"]}]), vectors[2:])
    with pytest.raises(UsageError, match="inputs of image, and no texts"):
        encoder.encode([{"image": []}])


def test_a_task_of_mteb_scores_our_vectors(model, tmp_path):
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class Local(AbsTaskSTS):
        min_score, max_score = 0, 5
        metadata = TaskMetadata(
            name="Local", dataset={"path": "local", "revision": "1"}, description="pairs from memory", type="STS",
            category="t2t", eval_splits=["test"], eval_langs=["eng-Latn"], main_score="cosine_spearman",
            reference=None, date=None, domains=None, task_subtypes=None, license=None, annotations_creators=None,
            dialect=None, sample_creation=None, bibtex_citation=None,
        )  # fmt: skip

        def load_data(self, *args, **settings):
            first, second = zip(*PAIRS, strict=True)
            rows = {"sentence1": list(first), "sentence2": list(second), "score": SCORES}
            self.dataset = {"test": datasets.Dataset.from_dict(rows)}
            self.data_loaded = True

    encoder = lv.MtebEncoder(model)
    assert isinstance(encoder, mteb.EncoderProtocol)
    assert encoder.mteb_model_meta.name == f"larvatus/{model.bundle.path.name}"
    assert model.fingerprint.startswith(encoder.mteb_model_meta.revision)
    results = mteb.evaluate(encoder, Local(), cache=None, show_progress_bar=False)
    ours = lv.evaluate(model, data=[(a, b, s) for (a, b), s in zip(PAIRS, SCORES, strict=True)], vectors="sts",
                       labels="regression", samples=10)  # fmt: skip
    theirs = results[0].scores["test"][0]["cosine_spearman"]
    assert theirs == pytest.approx(ours.metrics["spearman"].value, abs=1e-4)
    vectors = [model.embed([pair[side] for pair in PAIRS]) for side in (0, 1)]
    assert theirs == pytest.approx(spearmanr(encoder.similarity_pairwise(*vectors), SCORES).statistic, abs=1e-4)
