"""Blanks are filled as a direct computation with `transformers` says, jointly as by trying every filling."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze import fill as module
from larvatus.inference.cloze.fill import fill_blanks, read_blanks, window
from larvatus.inference.cloze.results import Fill, JointFill
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def model(tiny_model: Make) -> Network:
    made: Network = tiny_model(seed=3)
    return made


@pytest.fixture(scope="module")
def theirs(model: Network, save_tiny: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    directory: Path = save_tiny(tmp_path_factory.mktemp("m"), model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    return transformers.BertForMaskedLM.from_pretrained(directory).eval(), tokenizer


def probabilities(theirs: tuple[Any, Any], ids: list[int], place: int) -> torch.Tensor:
    """p(token | the other tokens) at one place, by transformers: [V]."""
    with torch.no_grad():
        return torch.softmax(theirs[0](torch.tensor([[2, *ids, 3]])).logits[0, place + 1], -1)


def test_one_blank_equals_a_direct_computation(model: Network, tiny_tokenizer: Tokenizer, theirs: Any) -> None:
    text = "The [MASK] of the river was wide."
    fills = fill_blanks(model, tiny_tokenizer, text, top=8)
    ids = theirs[1](text, add_special_tokens=False)["input_ids"]
    direct = probabilities(theirs, ids, ids.index(4))
    direct[:5] = 0  # special tokens are no words
    expected = direct.topk(8)
    assert [fill.id for fill in fills] == expected.indices.tolist()
    assert [fill.probability for fill in fills] == pytest.approx(expected.values.tolist(), rel=1e-4)
    assert fills.marginals == (fills.best,)
    assert (fills.read, fills.total, fills.partial) == (8, 8, "")


@pytest.mark.parametrize("text", ["the [MASK] was [MASK] .", "[MASK][MASK]", "[MASK] turn your homework in [MASK] ?"])
def test_a_beam_as_wide_as_the_vocabulary_equals_trying_every_pair(
    model: Network, tiny_tokenizer: Tokenizer, theirs: Any, text: str
) -> None:
    size = tiny_tokenizer.size
    fills = fill_blanks(model, tiny_tokenizer, text, top=size, beam=size)
    ids = theirs[1](text, add_special_tokens=False)["input_ids"]
    blanks = [place for place, id in enumerate(ids) if id == 4]
    open_ = [probabilities(theirs, ids, place) for place in blanks]
    first = max((0, 1), key=lambda number: float(open_[number][5:].max()))
    scores: dict[tuple[int, int], float] = {}
    for a in range(5, size):
        filled = [a if place == blanks[first] else id for place, id in enumerate(ids)]
        rest = probabilities(theirs, filled, blanks[1 - first])
        for b in range(5, size):
            scores[(a, b) if first == 0 else (b, a)] = float(open_[first][a] * rest[b])
    best = sorted(scores, key=lambda pair: -scores[pair])[:size]
    assert [fill.ids for fill in fills if isinstance(fill, JointFill)] == best
    assert [fill.probability for fill in fills] == pytest.approx([scores[pair] for pair in best], rel=1e-3)
    assert sum(scores.values()) <= 1 + 1e-4


def test_three_blanks_score_by_the_chain_rule_in_the_order_of_confidence(
    model: Network, tiny_tokenizer: Tokenizer, theirs: Any
) -> None:
    text = "[MASK] river [MASK] the [MASK] ."
    ids = theirs[1](text, add_special_tokens=False)["input_ids"]
    blanks = [place for place, id in enumerate(ids) if id == 4]
    order = sorted(range(3), key=lambda number: -float(probabilities(theirs, ids, blanks[number])[5:].max()))
    for fill in fill_blanks(model, tiny_tokenizer, text, top=4, beam=6):
        assert isinstance(fill, JointFill)
        filled, score = list(ids), 1.0
        for number in order:
            score *= float(probabilities(theirs, filled, blanks[number])[fill.ids[number]])
            filled[blanks[number]] = fill.ids[number]
        assert fill.probability == pytest.approx(score, rel=1e-3)


def test_a_wider_beam_never_finds_worse(model: Network, tiny_tokenizer: Tokenizer) -> None:
    text = "[MASK] [MASK] the [MASK] [MASK] ."
    found = [fill_blanks(model, tiny_tokenizer, text, top=1, beam=beam)[0].probability for beam in (1, 4, 22)]
    assert found[0] <= found[2] * (1 + 1e-5)
    assert found[1] <= found[2] * (1 + 1e-5)


def test_marginals_stand_beside_joint_fills_and_alone(model: Network, tiny_tokenizer: Tokenizer, theirs: Any) -> None:
    text = "the [MASK] was [MASK] ."
    joint = fill_blanks(model, tiny_tokenizer, text, top=3)
    alone = fill_blanks(model, tiny_tokenizer, text, top=3, joint=False)
    assert len(joint) == 3
    assert len(alone) == 0
    assert joint.marginals == alone.marginals
    ids = theirs[1](text, add_special_tokens=False)["input_ids"]
    for place, blank in zip([1, 3], alone.marginals, strict=True):
        direct = probabilities(theirs, ids, place)
        assert [fill.probability for fill in blank] == pytest.approx(
            [float(direct[fill.id]) for fill in blank], rel=1e-4
        )
    assert alone.marginals[1][0].text == f"the [MASK] was {alone.marginals[1][0].token.removeprefix('##')} ." or (
        alone.marginals[1][0].token.startswith("##")
    )


def test_memory_is_bounded_by_cutting_the_batch_and_nothing_changes(
    model: Network, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the [MASK] was [MASK] ."
    whole = fill_blanks(model, tiny_tokenizer, text)
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 20)
    parts = fill_blanks(model, tiny_tokenizer, text)
    assert [fill.text for fill in whole] == [fill.text for fill in parts]
    assert [fill.probability for fill in whole] == pytest.approx([fill.probability for fill in parts], rel=1e-4)


def test_only_blanks_reach_the_head(model: Network, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    head, seen = model.objectives["masked-lm"], []
    logits = head.logits
    monkeypatch.setattr(head, "logits", lambda z, words: seen.append(len(z)) or logits(z, words))
    fill_blanks(model, tiny_tokenizer, "the [MASK] was wide and [MASK] .", beam=7)
    assert seen == [2, 7]


def test_the_filled_text_keeps_the_users_letters_and_joins_pieces(tiny_tokenizer: Tokenizer) -> None:
    blanks = read_blanks("The River [MASK] was [MASK]!", tiny_tokenizer)
    assert blanks.filled(["s", "wide"], [True, False]) == "The Rivers was wide!"
    assert blanks.places == (2, 4)
    assert blanks.words.tolist() == [0, 1, 2, 3, 4, 5]


def test_words_only_leaves_out_pieces_that_go_on_a_word(model: Network, tiny_tokenizer: Tokenizer) -> None:
    every = fill_blanks(model, tiny_tokenizer, "the [MASK] .", top=tiny_tokenizer.size)
    words = fill_blanks(model, tiny_tokenizer, "the [MASK] .", top=tiny_tokenizer.size, candidates="words")
    tokens = {fill.token for fill in every if isinstance(fill, Fill)}
    assert {"##s", "##ing", "##ed"} < tokens
    left_out = tokens - {fill.token for fill in words if isinstance(fill, Fill)}
    assert left_out == {"##s", "##ing", "##ed", ".", ",", "!", "?"}
    of_words = {fill.token: fill.probability for fill in words if isinstance(fill, Fill)}
    of_all = {fill.token: fill.probability for fill in every if isinstance(fill, Fill)}
    assert of_words == {token: of_all[token] for token in of_words}  # never renormalised
    glued = next(fill for fill in every if isinstance(fill, Fill) and fill.token == "##ing")
    assert glued.text == "theing ."


def test_only_the_mask_token_counts(model: Network, tiny_tokenizer: Tokenizer) -> None:
    blanks = read_blanks("[CLS] [SEP] [MASK] [mask] ___", tiny_tokenizer)
    assert len(blanks.places) == 1
    assert not {tiny_tokenizer.cls_id, tiny_tokenizer.sep_id} & set(blanks.ids.tolist())
    with pytest.raises(UsageError, match=r"mark each blank of the text with \[MASK\]"):
        fill_blanks(model, tiny_tokenizer, "The ___ of the river.")


def test_bad_calls_are_refused_in_one_line(model: Network, tiny_tokenizer: Tokenizer, tiny_model: Make) -> None:
    for options in ({"top": 0}, {"top": 10**9}, {"beam": -1}, {"beam": 10**9}):
        with pytest.raises(UsageError, match="must be a whole number from 1 to 27"):
            fill_blanks(model, tiny_tokenizer, "the [MASK]", **options)
    with pytest.raises(DataError, match="surrogate"):
        fill_blanks(model, tiny_tokenizer, "the \ud800 [MASK]")
    headless = tiny_model(objectives=(NextSentenceConfig(),))
    with pytest.raises(ArtefactError, match="no masked-lm head"):
        fill_blanks(headless, tiny_tokenizer, "the [MASK]")


def test_a_long_text_is_read_in_a_window_around_its_blanks_and_says_so(
    model: Network, tiny_tokenizer: Tokenizer
) -> None:
    left, right = "the river was wide and deep . " * 10, " a bank of the river ." * 10
    fills = fill_blanks(model, tiny_tokenizer, f"{left}[MASK]{right}", top=3)
    assert (fills.read, fills.total) == (30, 70 + 1 + 60)
    assert fills.partial == "read 30 of 131 tokens, around the blanks"
    assert fills[0].text.startswith(left.rstrip())
    assert fills[0].text.endswith(right)
    near = fill_blanks(
        model, tiny_tokenizer, f"{' '.join(left.split()[-14:])} [MASK]{' '.join(['', *right.split()[:15]])}", top=3
    )
    assert near.read == near.total == 30
    assert [fill.probability for fill in near] == pytest.approx([fill.probability for fill in fills], rel=1e-4)


def test_blanks_too_far_apart_are_refused_jointly_and_read_one_by_one(
    model: Network, tiny_tokenizer: Tokenizer
) -> None:
    text = f"a [MASK] {'the river was wide . ' * 10} [MASK] ."
    with pytest.raises(UsageError, match="52 tokens apart and the model's window has 30"):
        fill_blanks(model, tiny_tokenizer, text)
    fills = fill_blanks(model, tiny_tokenizer, text, joint=False, top=2)
    assert (fills.read, fills.total) == (54, 54)
    alone = fill_blanks(model, tiny_tokenizer, text[: text.rindex(" [MASK]")], top=2)
    assert [f.probability for f in fills.marginals[0]] == pytest.approx([f.probability for f in alone], rel=1e-4)


@pytest.mark.parametrize(("total", "room"), [*itertools.product([1, 5, 30, 31, 100], [1, 2, 30])])
def test_a_window_holds_its_places_and_all_that_fits(total: int, room: int) -> None:
    for place in range(total):
        start, end = window(total, [place], room)
        assert 0 <= start <= place < end <= total
        assert end - start == min(room, total)


def test_a_byte_level_vocabulary_takes_the_space_before_the_blank() -> None:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdeinrtv.", "Ġ", "Ġb", "Ġi", "in", "Ġin"]
    library = Library(
        models.BPE(
            {t: i for i, t in enumerate(tokens)}, [("Ġ", "b"), ("Ġ", "i"), ("i", "n"), ("Ġ", "in")], unk_token="<unk>"
        )
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(tokens[:5])
    tokenizer = Tokenizer.from_library(library)
    blanks = read_blanks("a <mask> b.", tokenizer)
    assert [tokenizer.token(id) for id in blanks.ids.tolist()] == ["a", "<mask>", "Ġb", "."]
    network = Network.build(
        TransformerConfig(layers=1, hidden=8, heads=2, max_positions=16),
        (MaskedLMConfig(),),
        tokenizer.size,
        seed=1,
    ).eval()
    texts = {fill.text for fill in fill_blanks(network, tokenizer, "a <mask> b.", top=tokenizer.size)}
    assert {"a in b.", "ain b.", "a. b.", "a b b.", "ab b."} <= texts


def test_results_print_and_turn_into_json(model: Network, tiny_tokenizer: Tokenizer) -> None:
    fills = fill_blanks(model, tiny_tokenizer, "the [MASK] was [MASK] .", top=2)
    value = json.loads(json.dumps(fills.to_dict()))
    assert value["fills"][0]["tokens"] == list(fills[0].tokens)  # type: ignore[union-attr]
    assert value["fills"][0]["probability"] == fills[0].probability
    assert len(value["marginals"]) == 2
    assert (value["read"], value["total"], value["text"]) == (5, 5, "the [MASK] was [MASK] .")
    assert str(fills).count("\n") == 2
    assert fills[0].text in str(fills)
    assert math.isclose(fills[:1][0].probability, fills[0].probability)
