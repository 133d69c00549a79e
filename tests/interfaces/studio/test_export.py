"""`larvatus studio export`: its tokenizer and groupings in node, its graph in ONNX Runtime, its files, its refusals."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, LarvatusError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.data.text.vocabularies.bpe import ByteBPEConfig
from larvatus.data.text.vocabularies.unigram import UnigramConfig
from larvatus.inference.maps.clusters import principal_components
from larvatus.interfaces.serve.operations.instances import clusters
from larvatus.interfaces.studio.export import PAGE, RUNTIME, RUNTIME_FILES, export_page, find_runtime
from larvatus.interfaces.studio.offline_tokenizer import character_classes, check_offline_tokenizer
from larvatus.models.bundle.onnx_file import open_session
from larvatus.models.bundle.page_graph import output_names, rounded, write_page_graph
from larvatus.models.heads import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.data.text.conftest import CONFIGS, TEXTS
from tests.data.text.hostile import PIECES
from tests.interfaces.browser.needs import REQUIRED
from tests.patience import WATCHDOG_S

VOCABULARIES = CONFIGS | {
    "unigram-lower": UnigramConfig(size=230, coverage=1.0, lowercase=True),
    "byte-bpe-digits": ByteBPEConfig(size=420, digits="apart"),
}
SCRIPT = """
import { readFileSync } from "node:fs";
import { clusters, planeOf } from "./offline/grouping.js";
import { makeTokenizer } from "./offline/tokenizer.js";
const { texts, classes, kinds, groups } = JSON.parse(readFileSync("given.json", "utf8"));
const encoded = (tokenizer, text) => {
  try {
    return tokenizer.encode(text);
  } catch (error) {
    return { error: error.message };
  }
};
const tokens = Object.fromEntries(Object.entries(kinds).map(([name, settings]) => {
  const tokenizer = makeTokenizer(settings, classes);
  return [name, texts.map((text) => encoded(tokenizer, text))];
}));
const cosines = (vectors) => vectors.map((a) => vectors.map((b) => a.reduce((sum, value, d) => sum + value * b[d], 0)));
const grouped = groups.map((vectors) => [clusters(cosines(vectors)), clusters(cosines(vectors), 3), planeOf(vectors)]);
console.log(JSON.stringify({ tokens, grouped }));
"""


def texts() -> list[str]:
    """Hostile pieces, sentences, pieces mixed at random, and any characters that this Python's Unicode knows."""
    sampler = random.Random(5)
    mixed = ["".join(sampler.choice(PIECES) for _ in range(sampler.randint(2, 12))) for _ in range(400)]
    assigned = [char for char in map(chr, range(0x30000)) if unicodedata.category(char) not in ("Cn", "Cs")]
    others = ["".join(sampler.choices(assigned, k=6)) for _ in range(800)]
    return [*PIECES, *TEXTS[:12], *mixed, *others, "a" * 300, "<s>x</s>", "a<unk>b", "e\u0327\u0301\u0301"]


def groups() -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    sampler = np.random.default_rng(3)
    made = []
    for sizes, noise in (((5, 3, 4), 0.3), ((6, 6), 0.8), ((4, 4), 5.0), ((2, 1), 0.1)):
        centres = sampler.normal(size=(len(sizes), 12))
        vectors = np.repeat(centres, sizes, axis=0) + noise * sampler.normal(size=(sum(sizes), 12))
        made.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return made


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Tokenizer]:
    return {name: train_vocabulary(TEXTS, config) for name, config in VOCABULARIES.items()}


@pytest.fixture(scope="module")
def computed(vocabularies: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        assert not REQUIRED, "node is not installed"
        pytest.skip("node is not installed")
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    kinds = {name: json.loads(each.library.to_str()) for name, each in vocabularies.items()}
    given = {"texts": texts(), "classes": character_classes(), "kinds": kinds, "groups": [g.tolist() for g in groups()]}
    (folder / "given.json").write_text(json.dumps(given), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.js").write_text(SCRIPT)
    run = subprocess.run([node, "run.js"], cwd=folder, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_javascript_gives_the_ids_and_characters_of_the_tokenizers_library(
    name: str, computed: dict[str, Any], vocabularies: dict[str, Tokenizer]
) -> None:
    wrong = []
    for text, given in zip(texts(), computed["tokens"][name], strict=True):
        try:
            ids, spans = vocabularies[name].encode_spans(text)
            wanted = {"ids": ids.tolist(), "spans": spans.tolist()}
        except LarvatusError:
            wanted = {}
        if given != wanted and not (not wanted and "error" in given):
            wrong.append((text, given, wanted))
    assert wrong == []


def test_groups_and_points_are_those_of_the_server(computed: dict[str, Any]) -> None:
    for vectors, (chosen, three, plane) in zip(groups(), computed["grouped"], strict=True):
        assert chosen == clusters(vectors).tolist()
        assert three == clusters(vectors, 3).tolist()
        np.testing.assert_allclose(plane, principal_components(vectors, 2), atol=1e-6)


SHAPES = {
    "modern": {"norm": "pre", "positions": "rotary", "gated": True, "biases": False, "segments": 0, "first_norm": False}
    | {"local_attention": 4, "global_every": 2},
    "bert": {"embedding": 8, "relative_buckets": 8, "relative_distance": 16},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_graph_gives_every_layer_head_and_word_of_the_network_with_rounded_weights(
    shape: str, tiny_model: Callable[..., Any], tmp_path: Path
) -> None:
    network = tiny_model(seed=3, objectives=(MaskedLMConfig(),), **SHAPES[shape])
    assert write_page_graph(network, tmp_path / "model.onnx") < 1e-5
    rounded(network)
    encoder, head = network.encoder, network.objectives["masked-lm"]
    ids = np.random.default_rng(0).integers(0, len(encoder.word_vectors), (3, 9))
    places = np.array([(layer * 3 + row) * 9 + at for layer in range(3) for row in range(3) for at in (0, 5, 8)])
    given = dict(
        zip(
            output_names(2),
            open_session(tmp_path / "model.onnx").run(None, {"input_ids": ids, "places": places}),
            strict=True,
        )
    )
    batch = TokenBatch.of(ids.tolist()).map(torch.from_numpy)
    with torch.inference_mode():
        states = encoder(batch, layers=[0, 1, 2])
        raw = torch.cat([states[0], states[1], states[2]])
        lower = head.logits(encoder.final_norm(raw[:54]), encoder.word_vectors).softmax(-1)
        upper = head.logits(raw[54:], encoder.word_vectors).softmax(-1)
        wanted = torch.cat([lower, upper])[places]
        np.testing.assert_allclose(given["states"].reshape(81, -1), raw, atol=1e-4)
        np.testing.assert_allclose(np.exp(given["log_probabilities"]), wanted, atol=1e-5)
        for layer, weights in enumerate(encoder.attention(batch), start=1):
            np.testing.assert_allclose(given[f"attention_{layer}"], torch.stack(weights), atol=1e-5)


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """What has the names of ONNX Runtime for the web; nothing here runs it."""
    folder = tmp_path / "node_modules" / RUNTIME
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": RUNTIME, "version": "9.9.9"}))
    for name in RUNTIME_FILES:
        (folder / "dist" / name).write_bytes(b"x")
    return folder


def _write_nothing(_: Network, path: Path) -> float:
    path.write_bytes(b"no graph")
    return 0.0


def test_a_page_holds_all_that_it_names_and_no_outside_address(
    runtime: Path, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("larvatus.interfaces.studio.export.write_page_graph", _write_nothing)  # tested above
    heads = (ClassificationConfig(labels=("wet", "dry")),)
    model = save_tiny(tmp_path / "classes", tiny_model(objectives=heads), heads)
    page = export_page(model, out=tmp_path / "site", runtime=runtime)
    assert page.views == ("inside", "senses", "compare")
    assert page.left_out == dict.fromkeys(("fill", "layers"), "the model has no masked-LM head")
    assert page.size == sum(path.stat().st_size for path in (tmp_path / "site").rglob("*") if path.is_file())
    site = tmp_path / "site"
    html = (site / "index.html").read_text("utf-8")
    assert "connect-src 'self'" in html
    assert "data-offline" in html
    named = [target.partition('"')[0] for target in html.replace('src="', 'href="').split('href="')[1:]]
    assert [name for name in named if not name.startswith("#") and not (site / name).is_file()] == []
    for script in site.rglob("*.js"):
        for other in script.read_text("utf-8").split('from "')[1:]:
            assert (script.parent / other.partition('"')[0]).is_file(), (script, other[:40])
    assert "9.9.9" in (site / "LICENCES.txt").read_text("utf-8")
    with pytest.raises(
        ArtefactError, match="exists; choose another folder, or replace an earlier page with --overwrite"
    ):
        export_page(model, out=site, runtime=runtime)
    (site / "mine.txt").write_text("of the old page")
    export_page(model, out=site, runtime=runtime, overwrite=True)
    assert not (site / "mine.txt").exists()


def test_what_cannot_be_exported_is_refused_in_one_line(
    runtime: Path, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    model = save_tiny(tmp_path / "rivers", tiny_model())
    (tmp_path / "papers").mkdir()
    with pytest.raises(ArtefactError, match="is no page that Larvatus exported, and is not replaced"):
        export_page(model, out=tmp_path / "papers", runtime=runtime, overwrite=True)
    with pytest.raises(UsageError, match=r"the page would have \d+ MB, and the limit is 0; .* --limit 2"):
        export_page(model, out=tmp_path / "site", runtime=runtime, limit=0.001)
    monkeypatch.chdir(tmp_path)
    assert find_runtime(None) == (runtime, "9.9.9")
    (runtime / "dist" / "ort-wasm-simd-threaded.wasm").unlink()
    with pytest.raises(UsageError, match=r"no dist/ort-wasm-simd-threaded.wasm.*npm install onnxruntime-web@"):
        export_page(model, out=tmp_path / "site")
    (runtime / "package.json").write_text('{"name": "other"}')
    with pytest.raises(UsageError, match="is the npm package 'other', not onnxruntime-web"):
        export_page(model, out=tmp_path / "site")
    (runtime / "package.json").write_text("[")
    with pytest.raises(ArtefactError, match=r"is no package.json"):
        export_page(model, out=tmp_path / "site")
    with pytest.raises(UsageError, match=r"there is no onnxruntime-web in .*nowhere; get it with: npm install"):
        export_page(model, out=tmp_path / "site", runtime=tmp_path / "nowhere")
    assert not (tmp_path / "site").exists()


SPLIT = {"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": False}
SPACED = {"add_prefix_space": False, "use_regex": True}
BARE: dict[str, Any] = {"added_tokens": []}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "Prepend", "prepend": "x"}}, "it has the step Prepend"),
        ({"pre_tokenizer": {**SPLIT, "pattern": {"Regex": "a+"}}}, "it splits by the pattern 'a\\+'"),
        ({"pre_tokenizer": {**SPLIT, "behavior": "Removed"}}, "it splits with Removed"),
        ({"post_processor": {"type": "ByteLevel", "trim_offsets": True, **SPACED}}, "it trims offsets"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, **BARE}, "its model is WordLevel"),
    ],
)
def test_a_tokenizer_that_javascript_would_run_differently_is_refused(
    change: dict[str, Any], reason: str, vocabularies: dict[str, Tokenizer]
) -> None:
    settings = json.loads(vocabularies["wordpiece"].library.to_str()) | change
    library = type(vocabularies["wordpiece"].library).from_str(json.dumps(settings))
    with pytest.raises(UsageError, match=f"the page cannot run this tokenizer: {reason}; export a model"):
        check_offline_tokenizer(Tokenizer.from_library(library))


def test_a_model_of_another_kind_is_refused(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    config = CausalTransformerConfig(layers=1, hidden=8, heads=2)
    with pytest.raises(UsageError, match="a CausalTransformer has no page; bidirectional transformers such as bert"):
        write_page_graph(Network.build(config, (), tiny_tokenizer.size, 0), tmp_path / "model.onnx")
