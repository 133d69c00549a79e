"""Patterns, words and what is read: parsed, checked, never cut; scores at the blank equal a naive loop."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import LarvatusError, UsageError
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.text.vocabularies import BPEConfig, train_vocabulary
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import CausalLMConfig
from larvatus.tasks.prompt import prompted
from larvatus.tasks.prompt.pattern import (
    Pattern,
    _check_labels,
    encode_prompts,
    parse_verbaliser,
    truncated_lengths,
    verbaliser,
    words_by_label,
)
from larvatus.tasks.prompt.prompted import (
    neutral_offsets,
    prompt_config,
    prompt_scores,
    score_prompt,
    subtract_offsets,
    with_prompt_head,
)
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from tests.tiny import save_model

WORDS = {"wet": "river", "dry": "homework"}
SEVERAL = {"wet": ["river bank", "river"], "dry": "turn your homework"}
PLACE = Place("test", 1)
literal = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="{}\0"), max_size=12)


def example(text: str, pair: str | None = None, label: str | None = None) -> TextExample:
    return TextExample(text, pair, label, PLACE)


@given(parts=st.tuples(literal, literal, literal), swapped=st.booleans(), text=literal, word=st.just("great"))
def test_a_pattern_filled_is_python_s_own_format(
    parts: tuple[str, str, str], swapped: bool, text: str, word: str
) -> None:
    slots = ("{blank}", "{text}") if swapped else ("{text}", "{blank}")
    source = parts[0] + slots[0] + parts[1] + slots[1] + parts[2]
    pattern = Pattern.read(source)
    filled = source.format(text=text, blank=word)
    assert "".join(pattern.filled([text], word).split()) == "".join(filled.split())
    assert not pattern.pair


@given(st.text(alphabet="{}abtexlnkfirsco !:0", max_size=40))
def test_what_is_no_pattern_is_refused_in_a_line(source: str) -> None:
    try:
        pattern = Pattern.read(source)
    except UsageError:
        return
    slots = [piece.slot for piece in pattern.pieces if piece.slot]
    assert slots.count("blank") == 1
    assert sorted(set(slots) - {"blank"}) in (["text"], ["first", "second"])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{text} It was.", "has no {blank}"),
        ("{text} {blank} {blank}", "has {blank} 2 times"),
        ("It was {blank}.", "has no place for the text"),
        ("{first} {blank}", "write only {text}, or {first} and {second}"),
        ("{text} {first} {second} {blank}", "write only {text}"),
        ("{txet} {blank}", "did you mean text?"),
        ("{text!r} {blank}", "no slot {text!r}"),
        ("{text} {blank", "written twice"),
    ],
)
def test_bad_patterns(source: str, said: str) -> None:
    with pytest.raises(UsageError) as fault:
        Pattern.read(source)
    assert said in str(fault.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"wet": "river"}, "the label dry has no word; give it one: --verbaliser dry=WORD"),
        ({"wet": "river", "dry": "river"}, "the same as 'river' of dry"),
        ({"wet": ["river", "River"], "dry": "deep"}, "twice"),
        ({"wet": "river", "dry": "deep", "drier": "wide"}, "did you mean dry?"),
        ({"wet": "river", "dry": "zebra"}, "cannot spell 'zebra'"),
        ({}, "labels need words"),
    ],
)
def test_bad_words(tiny: Bundle, words: dict[str, Any], said: str) -> None:
    with pytest.raises(LarvatusError) as fault:
        prompt_config(tiny, pattern="null", words=words, labels=("dry", "wet"))
    assert said in str(fault.value)


def test_words_of_the_command_line() -> None:
    given = parse_verbaliser(["pos=great", "neg=terrible", "pos=a = b"])
    assert given == {"verbaliser": {"pos": ("great", "a = b"), "neg": ("terrible",)}}
    for bad in ("great", "=great", "pos="):
        with pytest.raises(UsageError, match="LABEL=WORD"):
            parse_verbaliser([bad])


def naive_logits(bundle: Bundle, ids: list[int]) -> torch.Tensor:
    """[T, V] of one sequence, by the pretrained model itself."""
    batch = on_device(TokenBatch.of([ids]), "cpu")
    head = bundle.network.heads["masked-lm"]
    return head.logits(bundle.network.encoder(batch), bundle.network.encoder.word_vectors)


TEXTS = ["the river was wide", "turn your homework in please", "a deep bank and the river", "was it"]


@torch.inference_mode()
def test_scores_at_the_blank_equal_a_naive_loop_over_the_pretrained_model(tiny: Bundle) -> None:
    config = prompt_config(tiny, pattern="please , {text} was {blank} !", words={**WORDS, "wet": ["river", "bank"]})
    scores = prompt_scores(
        with_prompt_head(tiny, config), [example(t) for t in TEXTS], limit=32, scoring=ScoringOptions(tokens=40)
    )
    tokenizer = tiny.tokenizer
    for text, row in zip(TEXTS, scores, strict=True):
        body = tokenizer.encode(f"please , {text} was [MASK] !", special_tokens_in_text=True).ids
        ids = tokenizer.template.single.ids(body).tolist()
        at = naive_logits(tiny, ids)[ids.index(tokenizer.mask_id)]
        wet = (at[tokenizer.id("river")] + at[tokenizer.id("bank")]) / 2
        np.testing.assert_allclose(row, [wet, at[tokenizer.id("homework")]], atol=1e-5)


@torch.inference_mode()
def test_words_of_several_tokens_equal_a_naive_loop(tiny: Bundle) -> None:
    """As many blanks as tokens, the likeliest of those open filled first; and in one pass for training."""
    config = prompt_config(tiny, pattern="{text} {blank} .", words=SEVERAL)
    ready = with_prompt_head(tiny, config)
    tokenizer, mask = tiny.tokenizer, tiny.tokenizer.mask_id
    examples = [example(text) for text in TEXTS]
    fast = prompt_scores(ready, examples, limit=32, scoring=ScoringOptions(tokens=60))
    spelt = {word: tokenizer.encode(word).ids.tolist() for word in ("river bank", "river", "turn your homework")}

    def framed(text: str, blanks: list[int]) -> list[int]:
        body = [*tokenizer.encode(text).ids, *blanks, *tokenizer.encode(" .").ids]
        return tokenizer.template.single.ids(np.array(body)).tolist()

    def in_turn(text: str, word: list[int]) -> float:
        blanks, total = [mask] * len(word), 0.0
        while mask in blanks:
            ids = framed(text, blanks)
            start = 1 + len(tokenizer.encode(text).ids)
            log = torch.log_softmax(naive_logits(tiny, ids), -1)
            open_ = [(float(log[start + n, word[n]]), n) for n in range(len(word)) if blanks[n] == mask]
            best, n = max(open_)
            blanks[n], total = word[n], total + best
        return total

    for text, row in zip(TEXTS, fast, strict=True):
        score = {word: in_turn(text, ids) for word, ids in spelt.items()}
        wanted = [(score["river bank"] + score["river"]) / 2, score["turn your homework"]]
        np.testing.assert_allclose(row, wanted, atol=1e-4)

    prompts = encode_prompts(tokenizer, config, examples, limit=32)
    batch = on_device(prompts.sequences.inputs(np.arange(len(TEXTS))), "cpu")
    head = head_of(ready.network)
    together = head.scores(head.states(ready.network.encoder, batch.tokens), batch)
    for text, row in zip(TEXTS, together, strict=True):
        log = torch.log_softmax(naive_logits(tiny, framed(text, [mask] * 3)), -1)
        start = 1 + len(tokenizer.encode(text).ids)
        score = {word: sum(float(log[start + n, id]) for n, id in enumerate(ids)) for word, ids in spelt.items()}
        wanted = [(score["river bank"] + score["river"]) / 2, score["turn your homework"]]
        np.testing.assert_allclose(row.numpy(), wanted, atol=1e-4)


def test_the_loss_is_cross_entropy_over_the_words_and_reaches_the_word_vectors(tiny: Bundle) -> None:
    from larvatus.tasks.encoding.sequences import WindowOptions
    from larvatus.tasks.prompt.task import labelled_prompts

    config = prompt_config(tiny, pattern="{text} {blank} .", words=WORDS)
    ready = with_prompt_head(tiny, config)
    examples = [example(text, label=label) for text, label in zip(TEXTS, ("wet", "dry", "wet", "dry"), strict=True)]
    _, data = labelled_prompts(ready, examples, config, WindowOptions(limit=32))
    batch = on_device(data.batch(np.arange(4)), "cpu")
    loss = loss_of(ready.network, batch, head_of(ready.network))
    loss.total.backward()
    scores = prompt_scores(ready, examples, limit=32, scoring=ScoringOptions()).astype(np.float64)
    naive = -sum(row[label] - math.log(np.exp(row).sum()) for row, label in zip(scores, (0, 1, 0, 1), strict=True))
    assert float(loss.total.detach()) == pytest.approx(naive, abs=1e-4)
    gradient = ready.network.encoder.word_vectors.grad
    assert gradient is not None
    assert gradient[tiny.tokenizer.id("homework")].abs().sum() > 0  # tied


@given(
    first=st.integers(0, 60), second=st.one_of(st.none(), st.integers(0, 60)), limit=st.integers(16, 32),
    shots=st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=40)
def test_the_pattern_is_never_cut_and_what_does_not_fit_is_said(
    tiny_tokenizer: Any, first: int, second: int | None, limit: int, shots: int
) -> None:
    pair = second is not None
    source = "please {first} , {second} was {blank} ." if pair else "please , {text} was {blank} ."
    config = verbaliser(tiny_tokenizer, Pattern.read(source), labels=("dry", "wet"), words=WORDS)
    shown = tuple(("river", "bank" if pair else None, "wet") for _ in range(shots))
    config = msgspec.structs.replace(config, demonstrations=shown)
    asked = example(" ".join(["river"] * first), " ".join(["bank"] * second) if second is not None else None)
    prompts = encode_prompts(tiny_tokenizer, config, [asked], limit=limit)
    words = [tiny_tokenizer.token(id) for id in prompts.sequences.ids]
    fits = int(prompts.shown[0])
    assert len(words) <= limit
    assert words.count("please") == fits + 1
    assert words.count("[MASK]") == 1
    texts = first + (second or 0)
    shot = 7 if pair else 6  # tokens of a demonstration
    sizes = truncated_lengths([first] if second is None else [first, second], limit - 2 - 5)
    assert prompts.sequences.read[0] == len(words) - 2 - fits * shot
    assert prompts.sequences.tokens[0] - prompts.sequences.read[0] == texts - sum(sizes)
    assert bool(prompts.describe()) == (fits < shots or prompts.sequences.read[0] < prompts.sequences.tokens[0])


@given(st.lists(st.lists(st.floats(-30, 30), min_size=3, max_size=3), min_size=2, max_size=5))
def test_calibration_divides_by_what_neutral_texts_get(rows: list[list[float]]) -> None:
    scores = np.array(rows)
    neutral, asked = scores[1:], scores[:1]
    bias = np.mean([np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in neutral], axis=0)
    p = np.exp(asked[0] - asked[0].max()) / np.exp(asked[0] - asked[0].max()).sum()
    wanted = (p / bias) / (p / bias).sum()
    given_ = asked.astype(np.float64) - np.array(neutral_offsets(neutral))
    mine = np.exp(given_[0] - given_[0].max())
    np.testing.assert_allclose(mine / mine.sum(), wanted, atol=1e-9)
    np.testing.assert_allclose(subtract_offsets(asked, neutral_offsets(neutral)), given_, rtol=1e-5, atol=1e-4)


def test_calibrated_neutral_texts_are_even(tiny: Bundle) -> None:
    config = prompt_config(tiny, pattern="{text} {blank} .", words=WORDS)
    asked = score_prompt(tiny, config, [example("please")], neutral=("please",), scoring=ScoringOptions())
    np.testing.assert_allclose(asked.scores[0] - asked.scores[0].max(), [0, 0], atol=1e-5)


def test_a_model_without_a_blank_or_a_continuation_is_refused(tiny_model: Any, save_tiny: Any, tmp_path: Any) -> None:
    from larvatus.models.bundle.directory import load_bundle
    from larvatus.models.objectives import NextSentenceConfig

    heads = (NextSentenceConfig(),)
    bundle = load_bundle(save_tiny(tmp_path / "plain", tiny_model(objectives=heads), heads))
    with pytest.raises(LarvatusError, match="pretrained with masked-lm, causal-lm or denoising"):
        prompt_config(bundle, pattern="null", words=WORDS)


def test_models_that_write_are_asked_for_the_word_and_what_follows(
    tiny: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`generation.likelihood` gives log P; here it counts what it is asked."""
    asked: list[tuple[list[int], list[int]]] = []

    def counted(network: Any, prompts: Any, continuations: Any) -> list[float]:
        asked.extend((p.tolist(), c.tolist()) for p, c in zip(prompts, continuations, strict=True))
        return [-float(len(c)) for c in continuations]

    monkeypatch.setattr(prompted, "continuation_scores", counted)
    config: VerbaliserConfig = prompt_config(tiny, pattern="{text} was {blank} .", words=SEVERAL)
    prompts, scores = prompted.continuation_prompt_scores(tiny, config, [example("the river")], limit=32)
    token = tiny.tokenizer.token
    assert [[token(id) for id in part] for part in asked[0]] == [
        ["[CLS]", "the", "river", "was"], ["river", "bank", "."],
    ]  # fmt: skip
    np.testing.assert_allclose(scores, [[-2.5, -4.0]])
    assert prompts.describe() == ""


def test_a_left_to_right_model_is_asked_for_the_likelihood_of_each_word(tmp_path: Any) -> None:
    """Against the chain rule, token by token, from a saved directory."""
    some_text = ["the river was wet and the bank was dry ."] * 4
    tokenizer = train_vocabulary(some_text, BPEConfig(size=60, frame="gpt"), allow_smaller=True)
    shape = CausalTransformerConfig(layers=2, hidden=16, heads=2, max_positions=64, init=0.5)
    network = Network.build(shape, [CausalLMConfig()], tokenizer.size, seed=3)
    heads = [CausalLMConfig()]
    save_model(tmp_path, network, tokenizer, heads)
    model = lv.load(tmp_path, device="cpu")
    network.eval()
    words = {"wet": "wet", "dry": "dry river"}
    answers = model.prompt(["the river", "the bank"], words, pattern="{text} was {blank}.")
    for text, answer in zip(["the river", "the bank"], answers, strict=True):
        naive = []
        for word in words.values():
            before, ids = (model.tokenizer.encode(part).ids for part in (f"{text} was", f"{text} was {word}."))
            with torch.no_grad():
                states = network.encoder(on_device(TokenBatch.of([ids.tolist()]), "cpu"))
                logs = (states @ network.encoder.word_vectors.T).log_softmax(-1)
            naive.append(sum(float(logs[at - 1, ids[at]]) for at in range(len(before), len(ids))))
        wanted = np.exp(naive) / np.exp(naive).sum()
        assert answer.label == ["wet", "dry"][int(wanted.argmax())]
        assert answer.probabilities == pytest.approx(dict(zip(words, wanted, strict=True)), abs=1e-5)


@pytest.mark.parametrize("words", [None, {}, {"pos": None}, {"pos": [1]}, ["pos"], "pos", {"pos": []}])
def test_labels_without_words_are_a_usage_error(words: Any) -> None:
    with pytest.raises(UsageError):
        _check_labels(tuple(words_by_label(words)), words_by_label(words))
