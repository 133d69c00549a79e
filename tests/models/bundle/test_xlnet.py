"""XLNet in the layout of `transformers`: both ways, from text, in one stream and in two, with memory and with heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError
from larvatus.core.rng import stream
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head, default_head_settings
from larvatus.models.heads import Classification, ClassificationConfig, Tagging, TaggingConfig
from larvatus.models.masked_prediction import require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.xlnet import XLNet, XLNetConfig
from larvatus.models.objectives import PermutationLM, PermutationLMConfig
from tests.models.bundle.theirs import PROSE, equal_tensors, scramble, their_directory, transformers
from tests.tiny import save_model

SMALL = {"d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 20}
MODEL = XLNetConfig(layers=2, hidden=16, heads=4, feedforward=20, max_positions=256)
TEXTS = ["Please turn your homework in.", "the river", "The bank of a wide river, and deep!", "was wide " * 20]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([PROSE], UnigramConfig(size=70, frame="xlnet"), allow_smaller=True)


@torch.no_grad()
def equal(directory: Path, theirs: Any) -> None:
    """Ours from the directory against theirs, each with its own tokenizer from the same directory and text."""
    bundle, pretrained = load_bundle(directory), transformers.AutoTokenizer.from_pretrained(directory)
    network, their_texts = bundle.network, pretrained(TEXTS, padding=True, return_tensors="pt")
    assert set(their_texts) == {"input_ids", "token_type_ids", "attention_mask"}
    answer = theirs.eval()(**their_texts, output_hidden_states=True)
    batch = on_device(encode_batch(bundle.tokenizer, TEXTS), "cpu")
    states = network.encoder(batch, layers=range(network.encoder.depth + 1))
    real = their_texts["attention_mask"].bool()
    assert states[-1].std() > 0.1  # not equal for being nothing
    for ours, other in zip(states, answer.hidden_states, strict=True):
        assert_close(ours, other[real], rtol=1e-4, atol=1e-4)
    head = network.heads["permutation-lm"]
    assert isinstance(head, PermutationLM)
    assert_close(head.logits(states[-1], network.encoder.word_vectors), answer.logits[real], rtol=1e-4, atol=1e-4)


def test_a_model_of_transformers_gives_its_logits_here_and_comes_back_number_for_number(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, "XLNetLMHeadModel", **SMALL, mem_len=7)
    equal(path, theirs)
    bundle = load_bundle(path)
    assert bundle.model == XLNetConfig(layers=2, hidden=16, heads=4, feedforward=20, memory=7)
    back = save_model(tmp_path / "back", bundle.network, tokenizer, bundle.objectives)
    again, info = transformers.XLNetLMHeadModel.from_pretrained(back, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_a_model_of_ours_gives_its_logits_there_and_loads_as_it_was(tmp_path: Path, tokenizer: Tokenizer) -> None:
    heads = (PermutationLMConfig(),)
    network = scramble(Network.build(MODEL, heads, tokenizer.size, 0))
    path = save_model(tmp_path / "ours", network, tokenizer, heads)
    assert json.loads((path / "config.json").read_text())["architectures"] == ["XLNetLMHeadModel"]
    equal(path, transformers.XLNetLMHeadModel.from_pretrained(path))
    bundle = load_bundle(path)
    assert (bundle.model, bundle.objectives) == (MODEL, heads)
    equal_tensors(bundle.network, network)


def test_a_pair_is_dressed_and_read_as_transformers_does(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, "XLNetModel", **SMALL)
    pretrained, bundle = transformers.AutoTokenizer.from_pretrained(path), load_bundle(path)
    encoded = pretrained("The river was wide.", "Turn in, please!", return_tensors="pt")
    texts = [bundle.tokenizer.encode(text).ids for text in ("The river was wide.", "Turn in, please!")]
    pair = bundle.tokenizer.template.pair
    segments = pair.segments(*(len(ids) for ids in texts)).tolist()
    assert pair.ids(*texts).tolist() == encoded["input_ids"][0].tolist()
    assert segments == encoded["token_type_ids"][0].tolist()
    assert segments[-3:] == [1, 1, 2]
    batch = TokenBatch.of([pair.ids(*texts).tolist()], segments=[segments]).map(torch.from_numpy)
    assert_close(bundle.network.encoder(batch), theirs(**encoded).last_hidden_state[0], rtol=1e-4, atol=1e-4)


def permuted(lengths: list[int]) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Of each sequence an order in which the last third is predicted; then all, and the places, flat."""
    draw, by_sequence, places = stream(4, "test xlnet layout"), [], []
    for length in lengths:
        turns = torch.from_numpy(draw.permutation(length)) + 1
        asked = turns > length - max(1, length // 3)
        by_sequence.append(torch.where(asked, turns, 0))
        places.append(torch.nonzero(asked)[:, 0])
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    flat = torch.cat([inner + start for inner, start in zip(places, starts, strict=True)])
    return by_sequence, places, torch.cat(by_sequence), flat


@torch.no_grad()
def test_two_streams_are_those_of_transformers_with_the_same_perm_mask_and_target_mapping(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, "XLNetLMHeadModel", **SMALL)
    bundle, pretrained = load_bundle(path), transformers.AutoTokenizer.from_pretrained(path)
    encoder, head = bundle.network.encoder, bundle.network.heads["permutation-lm"]
    assert isinstance(encoder, XLNet)
    assert isinstance(head, PermutationLM)
    batch = on_device(encode_batch(bundle.tokenizer, TEXTS), "cpu")
    orders, places, order, flat = permuted(batch.lengths.tolist())
    ours = head.logits(encoder.two_streams(batch, order, flat), encoder.word_vectors)
    done = 0
    for text, turns, asked in zip(TEXTS, orders, places, strict=True):
        encoded = pretrained(text, return_tensors="pt")
        # 1 hides: what comes later, itself too; content may always see itself, which their model sees to
        hides = (turns[None, :] >= turns[:, None]) & ~((turns[None, :] == 0) & (turns[:, None] == 0))
        mapping = torch.nn.functional.one_hot(asked, len(turns)).float()
        answer = theirs(**encoded, perm_mask=hides.float()[None], target_mapping=mapping[None]).logits[0]
        assert_close(ours[done : done + len(asked)], answer, rtol=1e-4, atol=1e-4)
        done += len(asked)


@torch.no_grad()
def test_memory_is_that_of_transformers_segment_after_segment(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, "XLNetModel", **SMALL, mem_len=7)
    encoder = load_bundle(path).network.encoder
    assert isinstance(encoder, XLNet)
    memory = their_memory = None
    for number in range(3):
        ids = torch.from_numpy(stream(5, "test memory", 0, number).integers(9, tokenizer.size, size=(2, 5)))
        states, memory = encoder.with_memory(TokenBatch.of(ids.tolist()).map(torch.from_numpy), memory)
        answer = theirs(ids, token_type_ids=torch.zeros_like(ids), mems=their_memory, use_mems=True)
        their_memory = answer.mems
        assert_close(states, answer.last_hidden_state.flatten(0, 1), rtol=1e-4, atol=1e-4)
        for mine, other in zip(memory.states, their_memory, strict=True):
            assert_close(mine.unflatten(0, (2, -1)), other.transpose(0, 1), rtol=1e-4, atol=1e-4)
    assert memory is not None
    assert memory.lengths.tolist() == [7, 7]


@torch.no_grad()
def test_a_blank_is_predicted_as_by_the_documented_call_of_transformers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Their documentation: hide the place from all, map the target to it."""
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, "XLNetLMHeadModel", **SMALL)
    bundle, pretrained = load_bundle(path), transformers.AutoTokenizer.from_pretrained(path)
    encoded = pretrained("The <mask> was wide.", return_tensors="pt")
    ids = encoded["input_ids"][0]
    place = int((ids == pretrained.mask_token_id).nonzero()[0])
    hides, mapping = torch.zeros(1, len(ids), len(ids)), torch.zeros(1, 1, len(ids))
    hides[:, :, place], mapping[:, :, place] = 1, 1
    answer = theirs(**encoded, perm_mask=hides, target_mapping=mapping).logits[0]
    predictor = require_predictor(bundle.network, bundle.tokenizer, what="fill blanks")
    segments = encoded["token_type_ids"].tolist()
    batch = TokenBatch.of([ids.tolist()], segments=segments).map(torch.from_numpy)
    assert_close(predictor.logits(batch, torch.tensor([place])), answer, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["classification", "tagging"])
@torch.no_grad()
def test_heads_of_fine_tuned_models_agree_both_ways(kind: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Texts are classified at <cls>, their last token, padded on the left there."""
    labels = ("bad", "fair", "good")
    suffix = {"classification": "ForSequenceClassification", "tagging": "ForTokenClassification"}[kind]
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    path, theirs = their_directory(tmp_path / "theirs", tokenizer, f"XLNet{suffix}", **SMALL, **names)
    check_head(path, theirs)

    base, _ = their_directory(tmp_path / "base", tokenizer, "XLNetModel", **SMALL)
    bundle = load_bundle(base)
    config = {"classification": ClassificationConfig, "tagging": TaggingConfig}[kind](
        labels=labels, **default_head_settings(bundle, kind)
    )
    ready, _ = attach_head(bundle, config, seed=1)
    back = save_model(tmp_path / "back", scramble(ready.network), tokenizer, ready.objectives)
    check_head(back, getattr(transformers, f"XLNet{suffix}").from_pretrained(back))


def check_head(path: Path, theirs: Any) -> None:
    bundle, pretrained = load_bundle(path), transformers.AutoTokenizer.from_pretrained(path)
    encoded = pretrained(TEXTS, padding=True, return_tensors="pt")
    answer = theirs.eval()(**encoded).logits
    batch = TrainingBatch(tokens=on_device(encode_batch(bundle.tokenizer, TEXTS), "cpu"), targets={})
    states = bundle.network.encoder(batch.tokens)
    (head,) = bundle.network.heads.values()
    if isinstance(head, Tagging):
        assert_close(head.logits(states, batch), answer[encoded["attention_mask"].bool()], rtol=1e-4, atol=1e-4)
        return
    assert isinstance(head, Classification)
    assert head.config.pool == "last"
    assert_close(head.logits(head.features(states, batch), batch), answer, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("field", "value"), [("attn_type", "uni"), ("clamp_len", 5), ("summary_type", "mean")])
def test_what_is_computed_otherwise_is_refused(field: str, value: Any, tmp_path: Path, tokenizer: Tokenizer) -> None:
    path, _ = their_directory(tmp_path / "theirs", tokenizer, "XLNetModel", **SMALL)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(ArtefactError, match=field):
        load_bundle(path)
