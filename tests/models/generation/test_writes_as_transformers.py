"""From strings on both sides: the tokens that we write are those that `transformers` writes from the same directory."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.interfaces.cli.main import run
from larvatus.models.generation.generator import continuation_scores, prompt_ids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

END = "<|endoftext|>"
CONTEXT = 64
TEXTS = ["The function returns", "x", "A list of names, each with the number of its line, is", "Note that it", "Ⅷ 雪"]
SOME_TEXT = [
    "The function returns a list of the names that the file holds, each with the number of its line. Note that it"
] * 4
Made = tuple[Path, Any, Any]


def vocabulary(folder: Path) -> Any:
    """A byte-level vocabulary as GPT-2 has it."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    library.train_from_iterator(SOME_TEXT, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=library, eos_token=END, bos_token=END, unk_token=END)
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(scope="module", params=["gpt2", "openai-gpt"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A directory of random weights, and what `transformers` loads from it."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = vocabulary(folder)
    torch.manual_seed(3)
    shape = {
        "vocab_size": 300,
        "n_positions": CONTEXT,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "initializer_range": 0.25,
    }
    if request.param == "gpt2":
        model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, eos_token_id=0, bos_token_id=0))
    else:
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**shape))
    model.save_pretrained(folder)
    return folder, model.eval(), tokenizer


@pytest.fixture(scope="module")
def ours(made: Made) -> lv.Model:
    return lv.load(made[0], device="cpu")


def theirs(made: Made, text: str, **settings: Any) -> tuple[int, ...]:
    """What they add to a text, without padding."""
    _, model, tokenizer = made
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    row = model.generate(ids, do_sample=False, eos_token_id=0, pad_token_id=0, **settings)[0, ids.shape[1] :].tolist()
    return tuple(row[: row.index(0) + 1] if 0 in row else row)


def test_greedy_texts_are_theirs(made: Made, ours: lv.Model) -> None:
    written = ours.generate(TEXTS, max_tokens=20)
    assert [each[0].ids for each in written] == [theirs(made, text, max_new_tokens=20) for text in TEXTS]
    for text, generated in zip(TEXTS, written, strict=True):
        assert generated.prompt == text
        assert generated[0].whole == text + generated.text
        whole = made[2](text)["input_ids"] + [index for index in generated[0].ids if index]
        assert generated[0].whole == made[2].decode(whole)


@pytest.mark.parametrize(("beams", "penalty"), [(2, 1.0), (4, 0.3)])
def test_beams_are_theirs(made: Made, ours: lv.Model, beams: int, penalty: float) -> None:
    written = ours.generate(TEXTS, max_tokens=12, beams=beams, length_penalty=penalty)
    expected = [theirs(made, t, max_new_tokens=12, num_beams=beams, length_penalty=penalty) for t in TEXTS]
    assert [each[0].ids for each in written] == expected


@torch.no_grad()
def test_likelihoods_are_theirs_and_those_of_what_was_written(made: Made, ours: lv.Model) -> None:
    written = ours.generate(TEXTS, max_tokens=6)
    prompts = [prompt_ids(text, ours.tokenizer, closed=False) for text in TEXTS]
    scores = continuation_scores(ours.network, prompts, [np.array(each[0].ids) for each in written])
    assert scores == pytest.approx([each[0].log_probability for each in written], abs=1e-4)
    for prompt, generated, score in zip(prompts, written, scores, strict=True):
        ids = torch.tensor([*prompt.tolist(), *generated[0].ids])
        likely = made[1](ids[None]).logits[0].log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
        assert score == pytest.approx(float(likely[len(prompt) - 1 :].sum()), abs=1e-4)


def test_a_text_does_not_depend_on_its_batch(ours: lv.Model) -> None:
    def written(prompts: list[str], **changed: Any) -> list[list[tuple[int, ...]]]:
        settings = {"temperature": 0.9, "top_p": 0.95, "samples": 3, "seed": 5, "max_tokens": 15, **changed}
        return [[each.ids for each in generated] for generated in ours.generate(prompts, **settings)]

    together = written(TEXTS)
    assert written(TEXTS[:1]) == together[:1]
    assert written(TEXTS[:4]) == together[:4]
    assert written(TEXTS, samples=2) == [samples[:2] for samples in together]
    assert len(set(together[1])) == 3
    assert written(TEXTS, seed=6) != together


def test_it_ends_before_a_text_at_which_to_stop(ours: lv.Model) -> None:
    free = ours.generate(TEXTS[0], max_tokens=20)
    stop = free.text[9:12]
    stopped = ours.generate(TEXTS[0], max_tokens=20, stop=[stop, "never written"])
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped[0].ended == "stop"
    assert len(stopped[0].ids) < len(free[0].ids)
    searched = ours.generate(TEXTS[0], max_tokens=20, beams=3, stop=[stop])
    assert all(stop not in continuation.text for continuation in searched)


def test_an_empty_prompt_begins_at_the_start_token_and_the_context_may_fill(made: Made, ours: lv.Model) -> None:
    generated = ours.generate("", max_tokens=CONTEXT - 1)
    assert generated.read == 1
    long = ours.generate("name of the line " * 5)
    assert long[0].ended in ("end", "context")
    assert long.read + len(long[0].ids) <= CONTEXT


def test_what_does_not_fit_is_refused_in_a_line_that_names_the_limit(ours: lv.Model) -> None:
    with pytest.raises(UsageError, match=r"^prompt 2 has \d+ tokens, and the model's context is 64 tokens, prompt and"):
        ours.generate(["x", "name of the line " * 40])
    with pytest.raises(
        UsageError, match=r"^max_tokens = 64 is more than fits: .* 64 tokens, .*, and the prompt has 1; .* = 63 or"
    ):
        ours.generate("x", max_tokens=64)
    assert len(ours.generate("x", max_tokens=63)[0].ids) <= 63


def test_an_encoder_does_not_generate(
    tmp_path: Path, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_tiny(tmp_path / "bert", tiny_model(seed=1))
    with pytest.raises(SystemExit) as ended:
        run(["generate", "the river", "--model", str(folder)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "reads texts from both sides" in said
    assert "gpt or t5" in said


def test_the_command_goes_on_with_prompts_and_lines(
    made: Made, ours: lv.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "prompts.txt"
    lines.write_text("Note that it\n\nThe function\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        run(
            [
                "generate",
                "x",
                "--file",
                str(lines),
                "--model",
                str(made[0]),
                "--max-tokens",
                "5",
                "--json",
                "--device",
                "cpu",
            ]
        )
    assert ended.value.code == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = ours.generate(["x", "Note that it", "The function"], max_tokens=5)
    assert [row["continuations"][0]["ids"] for row in rows] == [list(each[0].ids) for each in expected]
    with pytest.raises(SystemExit) as ended:
        run(["generate", "x", "--model", str(made[0]), "--beams", "0"])
    assert ended.value.code == 2
    assert "--beams = 0 must lie between 1 and 1,000" in capsys.readouterr().err
