"""The lens: the model itself at the last layer, the same words as `transformers` below it, and a trained translator."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, LarvatusError
from larvatus.inference.cloze.fill import read_blanks
from larvatus.inference.interpret.lens import read_lens
from larvatus.inference.interpret.tuned_lens import (
    LENSES,
    Lens,
    LensDescription,
    TunedLens,
    kl_by_layer,
    masked_lm_predictor,
)
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives import CausalLMConfig, MaskedLMConfig, NextSentenceConfig, PermutationLMConfig
from tests.made_up import sentences
from tests.models.bundle.theirs import transformers
from tests.tiny import make_tokenizer, save_model

TEXT = "the river [MASK] was wideing and deep in a [MASK]."


def random_lens(network, model="m"):
    encoder = network.encoder
    generator = torch.Generator().manual_seed(1)
    weights = 0.1 * torch.randn(encoder.depth, encoder.width, encoder.width, generator=generator)
    biases = 0.1 * torch.randn(encoder.depth, encoder.width, generator=generator)
    return TunedLens("random", LensDescription(model=model, corpus="text", positions=10), weights, biases)


def lens_of(model, tuned=None):
    return Lens(masked_lm_predictor(model.network, model.tokenizer, "the model"), tuned)


@pytest.mark.parametrize("tuned", [False, True], ids=["logit lens", "tuned lens"])
def test_at_the_last_layer_the_lens_is_the_model_bit_for_bit(model, tuned) -> None:
    lens = lens_of(model, random_lens(model.network) if tuned else None)
    blanks = read_blanks("isn't well-known [MASK], naïve 山水!", model.tokenizer)
    ids = model.tokenizer.template.single.ids(blanks.ids)
    batch = TokenBatch.of([ids.tolist()]).map(torch.from_numpy)
    places = torch.tensor([blanks.places[0] + model.tokenizer.template.single.opening])
    with torch.inference_mode():
        expected = torch.log_softmax(lens.predictor.logits(batch, places), -1)
        (top,) = model.encoder(batch, layers=[model.encoder.depth])
        assert torch.equal(lens.log_probabilities(model.encoder.depth, top[places]), expected)
        (below,) = model.encoder(batch, layers=[1])
        assert not torch.equal(lens.log_probabilities(1, below[places]), expected)
    result = read_lens(lens, model.network, model.tokenizer, blanks.text, candidates="tokens")
    for word, log_p in zip(result.blanks[0].layers[-1].top, expected[0].topk(3).values.tolist(), strict=True):
        assert word.probability == math.exp(log_p)
    assert result.blanks[0].layers[-1].kl == 0


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_model, tiny_tokenizer):
    network = tiny_model(5, (MaskedLMConfig(),), layers=3)
    return save_model(tmp_path_factory.mktemp("lens") / "model", network, tiny_tokenizer)


def theirs_by_layer(directory, ids):
    """log p of the head of `transformers` on its own hidden states: [L + 1, T, V]."""
    theirs = transformers.BertForMaskedLM.from_pretrained(directory).eval()
    with torch.no_grad():
        states = theirs.bert(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return [theirs.cls(state)[0].log_softmax(-1) for state in states]


def test_every_layer_has_the_words_of_transformers(saved) -> None:
    model = lv.load(saved, device="cpu")
    result, blanks = model.lens(TEXT, top=20, words_only=False), read_blanks(TEXT, model.tokenizer)
    logs = theirs_by_layer(saved, [2, *blanks.ids.tolist(), 3])
    for blank, place in zip(result.blanks, blanks.places, strict=True):
        assert TEXT[blank.start : blank.end] == "[MASK]"
        best = []
        for layer, log_TV in zip(blank.layers, logs, strict=True):
            log_V = log_TV[place + 1]
            for word in layer.top:
                assert_allclose(word.probability, math.exp(log_V[model.tokenizer.id(word.token)]), rtol=2e-4, atol=1e-6)
            last = logs[-1][place + 1]
            assert_allclose(layer.kl, float((last.exp() * (last - log_V)).sum()), rtol=1e-3, atol=1e-5)
            best.append(5 + int(log_V[5:].argmax()))
        assert model.tokenizer.id(blank.word) == best[-1]
        same = [token == best[-1] for token in best]
        assert blank.decided == min(layer for layer in range(4) if all(same[layer:]))


def test_context_is_ordered_by_what_masking_a_word_changes(saved) -> None:
    model = lv.load(saved, device="cpu")
    text = "the river [MASK] was wideing and deep."
    (blank,) = model.lens(text).blanks
    blanks = read_blanks(text, model.tokenizer)
    ids, place = blanks.ids.tolist(), blanks.places[0] + 1
    whole = theirs_by_layer(saved, [2, *ids, 3])[blank.decided][place]
    expected = {}
    for word in (0, 1, 3, 4, 5, 6, 7):  # 2 is the blank
        changed = [4 if owner == word else id for id, owner in zip(ids, blanks.words.tolist(), strict=True)]
        log_V = theirs_by_layer(saved, [2, *changed, 3])[blank.decided][place]
        start, end = blanks.word_spans[word].tolist()
        expected[start, end] = float((whole.exp() * (whole - log_V)).sum())
    assert blank.decided > 0
    assert {(word.start, word.end) for word in blank.context} == expected.keys()
    for word in blank.context:
        assert text[word.start : word.end] == word.text
        assert_allclose(word.kl, expected[word.start, word.end], rtol=1e-3, atol=1e-5)
    assert [word.kl for word in blank.context] == sorted((word.kl for word in blank.context), reverse=True)
    assert blank.context[0].text in blank.summary()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(" ".join(words) + "." for words in sentences(1500, seed=3)))
    return path


def held_out_states(model):
    """States of all layers at masked words of other sentences: [L + 1, M, D]."""
    lens, found = lens_of(model), []
    for words in sentences(60, seed=9):
        blanks = read_blanks(" ".join(["[MASK]" if n == 1 else word for n, word in enumerate(words)]), model.tokenizer)
        batch = TokenBatch.of([[2, *blanks.ids.tolist(), 3]]).map(torch.from_numpy)
        with torch.inference_mode():
            states = lens.predictor.encoder(batch, layers=range(4))
            found.append(torch.stack([z_ND[[place + 1 for place in blanks.places]] for z_ND in states]))
    return torch.cat(found, dim=1)


def test_a_tuned_lens_lowers_the_kl_on_other_text_and_is_kept_with_its_model(saved, corpus, tmp_path, larvatus) -> None:
    model = lv.load(saved, device="cpu")
    lens = lv.train_lens(model, corpus, tokens=20_000, steps=120, rate=0.01)
    states = list(held_out_states(model))
    before, after = (kl_by_layer(lens_of(model, each), states) for each in (None, lens))
    assert all(tuned < 0.8 * logit for logit, tuned in zip(before, after, strict=True))
    assert all(tuned < logit for logit, tuned in zip(lens.about.logit_kl, lens.about.tuned_kl, strict=True))
    loaded = TunedLens.load(saved / "lens" / "default.safetensors")
    assert torch.equal(loaded.weights, lens.weights)
    assert (loaded.about.tuned_kl, loaded.checksum) == (lens.about.tuned_kl, lens.checksum)
    tuned = model.lens(TEXT, tuned="default")
    plain = model.lens(TEXT)
    assert tuned.to_dict()["tuned"] == "default"
    assert tuned.blanks[0].layers[-1] == plain.blanks[0].layers[-1]
    assert sum(layer.kl for layer in tuned.blanks[0].layers) < sum(layer.kl for layer in plain.blanks[0].layers)
    again = lv.train_lens(model, corpus, tokens=20_000, steps=120, rate=0.01, out=tmp_path / "again.safetensors")
    assert again.checksum == lens.checksum
    code, _, err = larvatus("lens", TEXT, "--model", saved, "--tuned", "defualt")
    assert (code, "did you mean default" in err) == (5, True)


def test_a_lens_of_other_weights_or_with_other_bytes_is_refused(saved, tmp_path, tiny_model, tiny_tokenizer) -> None:
    model = lv.load(saved, device="cpu")
    path = tmp_path / "mine.safetensors"
    random_lens(model.network, model.fingerprint).save(path)
    assert model.lens(TEXT, tuned=str(path)).tuned == "mine"
    other = save_model(tmp_path / "other", tiny_model(6, (MaskedLMConfig(),), layers=3), tiny_tokenizer)
    with pytest.raises(ArtefactError, match="tuned lens mine was fitted for another model than"):
        lv.load(other, device="cpu").lens(TEXT, tuned=str(path))
    changed = bytearray(path.read_bytes())
    changed[-3] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        model.lens(TEXT, tuned=str(path))
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(ArtefactError, match=r"mine\.safetensors"):
        model.lens(TEXT, tuned=str(path))
    wrong = random_lens(model.network, model.fingerprint)
    tensors = {"weights": wrong.weights[:, :4].contiguous(), "biases": wrong.biases}
    described = LensDescription(model=model.fingerprint, corpus="c", positions=1, sha256="0" * 64)
    LENSES.save(path, tensors, described)
    with pytest.raises(ArtefactError, match="do not fit each other"):
        model.lens(TEXT, tuned=str(path))


def test_what_has_no_lens_is_one_line(saved, tmp_path, tiny_model, tiny_tokenizer, corpus) -> None:
    model = lv.load(saved, device="cpu")
    for call, message in (
        (lambda: model.lens("the river"), "nothing to fill: mark each blank"),
        (
            lambda: model.lens("[MASK] " + "the " * 40),
            "the text has 41 tokens and the model's window has 30; shorten it",
        ),
        (lambda: model.lens(TEXT, top=0), "top must be a whole number from 1"),
        (lambda: model.lens(TEXT, tuned="none"), "has no tuned lens 'none'"),
        (lambda: model.lens(TEXT, tuned="../x"), "cannot name a tuned lens"),
        (lambda: model.lens(TEXT, tuned=3), "tuned is int, not text: the name of a tuned lens, or of its file"),
        (lambda: lv.train_lens(model, corpus, out=tmp_path / "lens.bin"), "must end in .safetensors"),
        (lambda: lv.train_lens(model, corpus, tokens=20, out=tmp_path / "l.safetensors"), "too few masked tokens"),
    ):
        with pytest.raises(LarvatusError, match=message):
            call()
    causal = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=32, init=0.3)
    xlnet = XLNetConfig(layers=1, hidden=16, heads=2, max_positions=32)
    for name, config, objective, message in (
        ("gpt", causal, CausalLMConfig(), "reads left to right and has no masked-lm head to read layers with"),
        ("xlnet", xlnet, PermutationLMConfig(), "predicts with a query stream"),
        ("headless", None, NextSentenceConfig(), "has no masked-lm head to read layers with; use a model pretrained"),
    ):
        network = (
            tiny_model(1, (objective,))
            if config is None
            else Network.build(config, (objective,), tiny_tokenizer.size, 1)
        )
        path = save_model(tmp_path / name, network, tiny_tokenizer, (objective,))
        with pytest.raises(ArtefactError, match=message):
            lv.load(path, device="cpu").lens(TEXT)
        with pytest.raises(ArtefactError, match=message):
            lv.train_lens(path, corpus, out=tmp_path / f"{name}.safetensors")


def test_the_command_prints_tables_json_and_a_page(larvatus, saved, corpus, tmp_path) -> None:
    code, out, err = larvatus("lens", TEXT, "--model", saved, "--top", 2)
    assert code == 0, err
    assert out.startswith("blank 1 of 2 · logit lens ")
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["3", "2", "1", "0"]
    assert "decided at layer" in out
    code, out, _ = larvatus("lens", "the [MASK] ran", "--model", saved, "--json")
    record = json.loads(out)
    assert (code, len(record["blanks"][0]["layers"]), record["tuned"]) == (0, 4, None)
    page = tmp_path / "lens.html"
    assert larvatus("lens", "a <b> [MASK]", "--model", saved, "--out", page)[0] == 0
    html = page.read_text()
    assert "&lt;b&gt;" in html
    assert "decided" in html
    rows = tmp_path / "lens.csv"
    assert larvatus("lens", TEXT, "--model", saved, "--out", rows, "--top", 1)[0] == 0
    assert rows.read_text().splitlines()[0] == "text,blank,layer,kl,rank,token,probability"
    assert len(rows.read_text().splitlines()) == 1 + 2 * 4
    out_file = tmp_path / "l.safetensors"
    words = ("lens", "train", "--model", saved, "--corpus", corpus, "--tokens", 4000, "--steps", 2, "--out", out_file)
    code, out, err = larvatus(*words)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["0", "1", "2"]
    assert f"--tuned {out_file}" in out
    assert larvatus(*words)[0] == 5
    code, out, _ = larvatus(*words, "--overwrite", "--json")
    assert len(json.loads(out)["tuned_kl"]) == 3
    assert larvatus("lens", TEXT, "--model", saved, "--tuned", out_file)[1].startswith("blank 1 of 2 · tuned lens l")
    for given, message in (
        (["lens", "--model", saved, "--json"], "nothing to look at"),
        (["lens", TEXT, "--model", saved, "--out", "x.bin"], "names no known format"),
    ):
        code, _, err = larvatus(*given)
        assert code == 2
        assert message in err


def test_a_blank_that_no_layer_reads_has_no_context(tmp_path) -> None:
    """The top word of the embeddings stays: nothing of the context decided it."""
    tokenizer = make_tokenizer()
    config = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=32)
    network = Network.build(config, (MaskedLMConfig(),), tokenizer.size, 0).eval()
    with torch.no_grad():
        network.heads["masked-lm"].bias[tokenizer.id("river")] = 100
    model = lv.load(save_model(tmp_path / "m", network, tokenizer), device="cpu")
    (blank,) = model.lens("the [MASK] ran").blanks
    assert (blank.decided, blank.context, blank.word) == (0, (), "river")
    assert np.allclose([layer.final for layer in blank.layers], 1)
    assert str(model.lens("the [MASK] ran")).endswith("note: river: decided at layer 0")
