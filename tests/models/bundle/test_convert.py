"""Model directories from one layout to another: what fits keeps every number, what does not is refused or said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, UnigramConfig, train_vocabulary
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.huggingface import LAYOUTS
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives import (
    CausalLMConfig,
    DenoisingConfig,
    MaskedLMConfig,
    NextSentenceConfig,
    PermutationLMConfig,
    SpanBoundaryConfig,
)
from tests.models.bundle.test_t5 import same_from_text
from tests.models.bundle.theirs import LIMIT, PROSE, equal, equal_tensors, scramble, their_directory, transformers
from tests.tiny import save_model

Make = Callable[..., Any]
FILLS = (MaskedLMConfig(),)
MODERN = {"norm": "pre", "positions": "rotary", "gated": True, "first_norm": False, "biases": False} | {
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("wordpiece", {"segments": 2}),
    "roberta": ("byte-bpe", {}),
    "xlm-roberta": ("unigram", {}),
    "modernbert": ("byte-bpe", MODERN),
    "distilbert": ("wordpiece", {}),
    "mpnet": ("unigram", {"relative_buckets": 32}),
    "electra": ("wordpiece", {"segments": 2, "embedding": 8}),
    "albert": ("unigram", {"segments": 2, "embedding": 8, "shared": True}),
}
"""A vocabulary and settings that each layout of Hugging Face can express."""
SIZES: dict[str, Any] = {"layers": 2, "hidden": 16, "heads": 2, "max_positions": LIMIT}
OTHERS: dict[str, tuple[Any, Any, Any]] = {
    "openai-gpt": (BPEConfig(size=90, frame="gpt"), CausalTransformerConfig(**SIZES), CausalLMConfig()),
    "gpt2": (
        ByteBPEConfig(size=290, frame="gpt"),
        CausalTransformerConfig(**SIZES, norm="pre", residual_init=True),
        CausalLMConfig(),
    ),
    "xlnet": (UnigramConfig(size=60, frame="xlnet"), XLNetConfig(**SIZES), PermutationLMConfig()),
    "t5": (UnigramConfig(size=160, frame="t5"), EncoderDecoderConfig(**SIZES), DenoisingConfig()),
}
"""Those that are no masked language models: a vocabulary, an encoder and its objective."""


@pytest.fixture
def make(tmp_path: Path, vocabularies: dict[str, Tokenizer]) -> Make:
    """A function that saves a model with random weights in the layout that fits it best."""

    def save(kind: str = "wordpiece", heads: Any = FILLS, **model: Any) -> tuple[Path, Network, Tokenizer]:
        tokenizer = vocabularies[kind]
        sizes = {"layers": 2, "hidden": 16, "heads": 2, "segments": 0, "max_positions": LIMIT}
        config = TransformerConfig(**{**sizes, **model})
        network = scramble(Network.build(config, heads, tokenizer.size, 0))
        save_bundle(
            tmp_path / "source",
            network=network,
            objective_configs=heads,
            tokenizer=tokenizer,
            recipe={"name": "tiny"},
            lineage={"seed": 7},
            card="---\nlicense: mit\nlibrary_name: transformers\n---\n\n# tiny\n",
        )
        return tmp_path / "source", network, tokenizer

    return save


@pytest.mark.parametrize("layout", CASES)
def test_there_and_back_keeps_every_number_and_transformers_agrees(tmp_path: Path, make: Make, layout: str) -> None:
    kind, settings = CASES[layout]
    source, network, tokenizer = make(kind, **settings)
    there = convert_bundle(source, tmp_path / "there", to=layout)
    assert (there.layout, there.kept, there.left_out) == (layout, ("masked-lm",), ())
    theirs, info = getattr(transformers, there.architecture).from_pretrained(there.path, output_loading_info=True)
    assert (theirs.config.model_type, set(info["missing_keys"]), set(info["unexpected_keys"])) == (layout, set(), set())
    equal(network, theirs, tokenizer)
    back = convert_bundle(there.path, tmp_path / "back", to="larvatus")
    assert json.loads((back.path / "config.json").read_text())["model_type"] == "larvatus"
    bundle = load_bundle(back.path)
    assert (bundle.model, bundle.objectives) == (network.encoder.config, FILLS)
    equal_tensors(bundle.network, network)
    assert bundle.tokenizer.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("layout", OTHERS)
def test_other_lineages_go_there_and_back_too(tmp_path: Path, layout: str) -> None:
    """That their numbers are those of `transformers`, from text, test_gpt.py, test_xlnet.py and test_t5.py show."""
    kind, model, objective = OTHERS[layout]
    tokenizer = train_vocabulary([PROSE], kind, allow_smaller=True)
    network = scramble(Network.build(model, (objective,), tokenizer.size, 0))
    save_model(tmp_path / "source", network, tokenizer, (objective,))
    there = convert_bundle(tmp_path / "source", tmp_path / "there", to=layout)
    assert (there.layout, there.left_out, layout in there.fits) == (layout, (), True)
    theirs, info = getattr(transformers, there.architecture).from_pretrained(there.path, output_loading_info=True)
    assert (theirs.config.model_type, set(info["missing_keys"]), set(info["unexpected_keys"])) == (layout, set(), set())
    if layout == "t5":
        same_from_text(there.path, theirs, network)
    back = convert_bundle(there.path, tmp_path / "back", to="larvatus")
    assert json.loads((back.path / "config.json").read_text())["model_type"] == "larvatus"
    bundle = load_bundle(back.path)
    assert (bundle.model, bundle.objectives) == (model, (objective,))
    equal_tensors(bundle.network, network)
    assert bundle.tokenizer.fingerprint == tokenizer.fingerprint
    with pytest.raises(ArtefactError, match=f"cannot be written in the layout bert: .*it fits .*{layout}"):
        convert_bundle(tmp_path / "source", tmp_path / "no", to="bert")


def test_a_directory_of_transformers_becomes_ours(tmp_path: Path, vocabularies: dict[str, Tokenizer]) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    sizes["max_position_embeddings"] = LIMIT
    tokenizer = vocabularies["wordpiece"]
    source, theirs = their_directory(tmp_path / "theirs", tokenizer, "BertForMaskedLM", **sizes)
    done = convert_bundle(source, tmp_path / "out")
    assert (done.layout, done.architecture) == ("bert", "BertForMaskedLM")
    bundle = load_bundle(done.path)
    equal(bundle.network, theirs, tokenizer)
    note = bundle.lineage["converted"]
    assert (note["from"], note["layout"], note["revision"]) == (str(source), "bert", None)
    assert list(note["weights"]) == ["model.safetensors"]
    assert "## Converted" in (done.path / "README.md").read_text()
    assert (done.path / "larvatus.json").is_file()


def test_the_card_the_recipe_and_the_lineage_go_along(tmp_path: Path, make: Make) -> None:
    source, _, _ = make()
    done = convert_bundle(source, tmp_path / "out", to="larvatus")
    bundle = load_bundle(done.path)
    assert bundle.recipe == {"name": "tiny"}
    assert bundle.lineage["seed"] == 7
    card = (done.path / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\nlibrary_name: larvatus\n---\n")
    assert f"from `{source}`" in card
    assert card.endswith("to the layout `larvatus` in float32. Only Larvatus loads it.\n")


def test_a_head_without_a_place_is_left_out_and_said(tmp_path: Path, make: Make) -> None:
    heads = (MaskedLMConfig(), SpanBoundaryConfig(place_size=5, places=7))
    source, network, tokenizer = make(heads=heads)
    best = convert_bundle(source, tmp_path / "best")
    assert (best.layout, best.left_out) == ("larvatus", ())  # the only one that keeps both
    assert {"distilbert", "larvatus"} <= set(best.fits)
    done = convert_bundle(source, tmp_path / "out", to="distilbert")
    assert (done.kept, done.left_out) == (("masked-lm",), ("span-boundary",))
    theirs = transformers.DistilBertForMaskedLM.from_pretrained(done.path)
    equal(network, theirs, tokenizer)
    assert "without its head for span-boundary" in (done.path / "README.md").read_text()
    assert load_bundle(done.path).lineage["converted"]["left_out"] == ["span-boundary"]


def test_a_head_of_another_form_is_left_out(tmp_path: Path, make: Make) -> None:
    source, _, _ = make(heads=(MaskedLMConfig(), NextSentenceConfig(pooler=False)), segments=2)
    done = convert_bundle(source, tmp_path / "out", to="bert")
    assert (done.kept, done.left_out) == (("masked-lm",), ("next-sentence",))
    assert load_bundle(done.path).objectives == FILLS


@pytest.mark.parametrize(
    ("kind", "model", "to", "words"),
    [
        (
            "wordpiece",
            {"norm": "pre", "gated": True, "segments": 2},
            "bert",
            ("BERT has no model.norm = 'pre', model.gated = True;", "it fits larvatus"),
        ),
        ("wordpiece", {"segments": 2}, "distilbert", ("model.segments = 2", "it fits bert, ")),
        ("wordpiece", {}, "roberta", ("roberta relies on the padding id 1, but this vocabulary has 0",)),
        ("byte-bpe", {}, "bert", ("BERT always has segments", "it fits roberta, xlm-roberta, ")),
        ("byte-bpe", {}, "mpnet", ("MPNet has no model.relative_buckets = 0", "roberta")),
        ("byte-bpe", MODERN, "roberta", ("model.positions = 'rotary'", "it fits modernbert, ")),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused_by_its_fields(
    tmp_path: Path, make: Make, kind: str, model: dict[str, Any], to: str, words: tuple[str, ...]
) -> None:
    source, _, _ = make(kind, **model)
    with pytest.raises(ArtefactError) as caught:
        convert_bundle(source, tmp_path / "out", to=to)
    line = str(caught.value)
    assert line.startswith(f"{source} cannot be written in the layout {to}: ")
    assert "\n" not in line
    for word in words:
        assert word in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_another_precision_is_written_and_read(tmp_path: Path, make: Make, name: Any) -> None:
    source, network, _ = make()
    done = convert_bundle(source, tmp_path / "out", to="distilbert", dtype=name)
    dtype = getattr(torch, name)
    assert {tensor.dtype for tensor in load_file(done.path / "model.safetensors").values()} == {dtype}
    assert json.loads((done.path / "config.json").read_text())["dtype"] == name
    assert transformers.DistilBertForMaskedLM.from_pretrained(done.path).dtype == dtype
    equal_tensors(load_bundle(done.path).network, network.to(dtype).float())
    native = convert_bundle(source, tmp_path / "native", to="larvatus", dtype=name)
    equal_tensors(load_bundle(native.path).network, network)


def test_a_number_too_large_for_float16_is_refused(
    tmp_path: Path, vocabularies: dict[str, Tokenizer], make: Make
) -> None:
    source, network, tokenizer = make()
    with torch.no_grad():
        network.encoder.embeddings.words.weight[3, 3] = 1e5
    save_model(source, network, tokenizer, FILLS)
    with pytest.raises(ArtefactError, match=r"word_embeddings\.weight holds numbers too large for float16"):
        convert_bundle(source, tmp_path / "out", dtype="float16")
    assert not (tmp_path / "out" / "config.json").exists()
    convert_bundle(source, tmp_path / "out", dtype="bfloat16")


def test_shards_become_one_file(tmp_path: Path, vocabularies: dict[str, Tokenizer]) -> None:
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": LIMIT}
    source, theirs = their_directory(tmp_path / "t", vocabularies["wordpiece"], "DistilBertForMaskedLM", **sizes)
    (source / "model.safetensors").unlink()
    theirs.save_pretrained(source, max_shard_size="8KB")
    assert len(list(source.glob("*.safetensors"))) > 1
    done = convert_bundle(source, tmp_path / "out")
    assert [path.name for path in done.path.glob("*.safetensors")] == ["model.safetensors"]
    equal(load_bundle(done.path).network, theirs, vocabularies["wordpiece"])


def test_the_source_and_models_of_others_are_not_overwritten(tmp_path: Path, make: Make) -> None:
    source, _, _ = make()
    with pytest.raises(UsageError, match="is what is read"):
        convert_bundle(source, source / ".." / "source")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    with pytest.raises(ArtefactError, match="did not write"):
        convert_bundle(source, other)
    load_bundle(source)


# ── the command


def command(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["convert", *map(str, arguments)])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_command_says_what_was_written(tmp_path: Path, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    source, _, _ = make(heads=(MaskedLMConfig(), SpanBoundaryConfig(place_size=5, places=7)))
    code, out, _ = command(capsys, source, tmp_path / "one", "--to", "distilbert", "--dtype", "bfloat16")
    assert code == 0
    assert "in the layout distilbert (DistilBertForMaskedLM, bfloat16)" in out
    assert "heads kept: masked-lm\n" in out
    assert "heads dropped: span-boundary\n" in out
    code, out, _ = command(capsys, source, tmp_path / "two")
    assert "in the layout larvatus" in out
    assert "transformers loads it with --to " in out
    code, out, _ = command(capsys, source, tmp_path / "three", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["layout"], found["kept"]) == ("larvatus", ["masked-lm", "span-boundary"])
    assert found["path"] == str(tmp_path / "three")


def test_a_misspelt_layout_is_a_usage_error_that_suggests(
    tmp_path: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _, _ = make()
    code, _, err = command(capsys, source, tmp_path / "out", "--to", "distilbart")
    assert (code, err) == (2, "larvatus: there is no layout 'distilbart'; did you mean distilbert?\n")
    code, _, err = command(capsys, source, tmp_path / "out", "--dtype", "int4")
    assert code == 2
    assert "int4" in err


def test_help_names_every_layout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = command(capsys, "--help")
    for layout in LAYOUTS:
        assert layout.model_type in out
