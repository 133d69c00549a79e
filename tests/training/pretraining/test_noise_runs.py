"""BERT on noisy text, from shards to a saved model: sequences stay within the phase, pairs keep their labels."""

import itertools
import math

import numpy as np
import pytest

import larvatus as lv
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader
from larvatus.data.corruption import Corruption, MaskVocabulary

NOISE = (
    "corruption.type=noise",
    "corruption.mask=0.1",
    "corruption.substitute=0.05",
    "corruption.delete=0.05",
    "corruption.insert=0.1",
    "corruption.reorder=0.1",
)


def steps(prepared, recipe, *, length, corrupted):
    corpus = Corpus.open(prepared.train)
    known = corpus.tokenizer
    vocabulary = MaskVocabulary(
        mask_id=known.mask_id, size=known.size, special_ids=known.special_ids, counts=known.counts
    )
    loader = Loader(
        corpus,
        packing=recipe.packing,
        length=recipe.corruption.text_length(length),
        corruption=Corruption(recipe.corruption, vocabulary, 3, limit=length) if corrupted else None,
        tokens=20_000,
        seed=3,
    )
    return known, [batch for batch, _ in itertools.islice(loader.steps(), 4)]


@pytest.mark.parametrize("units", ["words", "tokens"])
def test_noisy_pairs_stay_within_the_phase_and_keep_labels_segments_and_special_tokens(prepared, small_recipe, units):
    recipe = small_recipe(*NOISE, f"corruption.units={units}")
    tokenizer, batches = steps(prepared, recipe, length=48, corrupted=True)
    _, plain = steps(prepared, recipe, length=48, corrupted=False)
    for batch in batches:
        tokens = batch.tokens
        assert tokens.lengths.max() <= 48
        assert batch.targets[PairLabels].count == tokens.count
        assert np.array_equal(np.flatnonzero(tokens.positions == 0), np.flatnonzero(tokens.ids == tokenizer.cls_id))
        inside = np.diff(tokens.segments)[tokens.positions[1:] > 0]
        assert set(np.unique(inside).tolist()) == {0, 1}
        assert np.add.reduce(tokens.ids == tokenizer.sep_id) == 2 * tokens.count
    count = min(batches[0].tokens.count, plain[0].tokens.count)
    labels, same = (b[0].targets[PairLabels].labels[:count] for b in (batches, plain))
    assert np.array_equal(labels, same)
    asked = sum(batch.targets[MaskedTokens].count for batch in batches)
    text = sum(int((batch.tokens.words >= 0).sum()) for batch in batches) / 1.05  # before noise made it longer
    assert asked / text == pytest.approx(recipe.corruption.rate, rel=0.05)


def test_bert_trains_on_noisy_text_and_its_model_fills_blanks(run_small, tmp_path):
    results = run_small("noisy", steps=3, settings=NOISE)
    assert results.keys() == {32, 48}
    for result in results.values():
        assert result.scores.keys() == {"masked-lm", "next-sentence"}
        assert all(math.isfinite(score.loss) for score in result.scores.values())
    assert lv.load(tmp_path / "noisy").fill("The [MASK] was here.")
