"""The examples of docstrings do what they show, and the public interface documents every argument with one.

Examples run in a folder that holds what people have: `runs/mine`, a tiny model with a standardiser `z`; `my_texts/`;
`reviews.jsonl` and `train.conll`, labelled. They may use these names: `lv` (larvatus), `model` (`runs/mine`, loaded),
its `directory` and `vocabulary`, `classifier` (a model fine-tuned to say pos or neg), `reranker` (one that scores
passages for a query), `writer` (a left-to-right model), `texts` (a file of sixty documents), `folder` (an empty one),
`small` (settings that make a run take a second), `address` (where `runs/mine` is served) and a `client` of it.
"""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.inference.vectors.standardise import standardiser_path
from larvatus.inference.vectors.standardise_fit import FitOptions, fit_standardiser
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig
from tests.interfaces.serve.running import Running
from tests.made_up import classes, sentences, tags

SOURCE = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
DOCUMENTS = "The river ran past the bank of the town. Number {} was seen there. Nobody knew why the boat lay there.\n\n"
RELEVANT = [("where is the river", "the river is here", 1), ("where is the river", "a town", 0)] * 4
LABELLED = [("good fine good", "pos"), ("bad poor bad", "neg")] * 8
OF_RESULTS = {"to_dict", "pieces", "inside"}  # the same in all: for JSON, for a terminal, what stands within an entity
EXPORTS = {"larvatus.inference.model.onnx"}  # ten seconds; `tests/test_running.py` has quick ones
SMALL = ("model.layers=1", "model.hidden=32", "model.heads=2", "batch=4", "tokenizer.size=80")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.fixture(scope="module")
def clone(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[..., Any],
    tiny_tokenizer: lv.Tokenizer,
    save_tiny: Callable[..., Path],
) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    save_tiny(folder / "runs" / "mine", tiny_model(seed=3))
    causal = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=32, init=0.3)
    lm = (CausalLMConfig(),)
    save_tiny(folder / "runs" / "gpt", Network.build(causal, lm, tiny_tokenizer.size, seed=1), lm)
    (folder / "my_texts").mkdir()
    (folder / "empty").mkdir()
    lines = [" ".join(words).capitalize() + "." for words in sentences(400)]
    (folder / "my_texts" / "rivers.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "documents.txt").write_text("".join(map(DOCUMENTS.format, range(60))), encoding="utf-8")
    classes(folder / "reviews.jsonl")
    tags(folder / "train.conll")
    return folder


@pytest.fixture(scope="module")
def address(clone: Path) -> Iterator[str]:
    with Running([lv.load(clone / "runs" / "mine", device="cpu")]) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def names(clone: Path, address: str) -> dict[str, Any]:
    directory = clone / "runs" / "mine"
    model = lv.load(directory, device="cpu")
    z = fit_standardiser(
        model.encoder, model.tokenizer, [str(clone / "my_texts")], FitOptions(), name="z", model=model.fingerprint
    )
    z.save(standardiser_path(directory, "z"))
    return {
        "lv": lv,
        "model": model,
        "directory": directory,
        "vocabulary": model.tokenizer,
        "classifier": lv.finetune("classify", directory, train=LABELLED, epochs=2, rate=0.01, device="cpu"),
        "reranker": lv.finetune("rerank", directory, train=RELEVANT, hold_out=False, epochs=1, rate=0.01, device="cpu"),
        "writer": lv.load(clone / "runs" / "gpt", device="cpu"),
        "texts": str(clone / "documents.txt"),
        "folder": clone / "empty",
        "small": {"settings": SMALL},
        "address": address,
        "client": lv.Client(address),
    }


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=module_name(path), marks=[pytest.mark.proof] if module_name(path) in EXPORTS else [])
        for path in WITH_EXAMPLES
    ],
)
def test_examples_of_docstrings_do_what_they_show(
    path: Path, clone: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    result = doctest.testmod(import_module(module_name(path)), optionflags=flags, extraglobs=names)
    assert result.attempted
    assert not result.failed


def public() -> Iterator[tuple[str, Any]]:
    """Functions, classes and methods that `larvatus` offers by name."""
    for name in lv.__all__:
        thing = getattr(lv, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            yield name, thing
            for method, member in inspect.getmembers(thing, inspect.isroutine):
                ours = str(getattr(member, "__module__", "")).startswith("larvatus.")
                if ours and not method.startswith("_") and method not in OF_RESULTS:
                    yield f"{name}.{method}", member


def written_as_init(thing: Any) -> bool:
    return inspect.isclass(thing) and "__init__" in vars(thing) and "__dataclass_fields__" not in vars(thing)


def lacking(thing: Any) -> list[str]:
    """Arguments that are not documented. Classes that are records document their fields where they stand."""
    said = inspect.getdoc(thing) or ""
    if not said:
        return ["a docstring"]
    if inspect.isclass(thing) and not written_as_init(thing):
        return []
    _, _, arguments = said.partition("\nArgs:\n")
    return [
        argument
        for argument in inspect.signature(thing).parameters
        if argument != "self" and not re.search(rf"^ +\*{{0,2}}{argument}: ", arguments, re.MULTILINE)
    ]


def test_the_public_interface_documents_every_argument() -> None:
    things = dict(public())
    assert len(things) > 100
    assert {name: found for name, thing in things.items() if (found := lacking(thing))} == {}


WITH_AN_EXAMPLE = [
    *(name for name in lv.__all__ if inspect.isfunction(getattr(lv, name))),
    *(f"Model.{name}" for name in vars(lv.Model) | vars(lv.Model.__base__ or object) if not name.startswith("_")),
    *("Client", "Model", "TextClassifier", "WordTagger", "Standardiser", "TokenBatch", "Tokenizer"),
]


def has_an_example(name: str) -> bool:
    owner, _, method = name.partition(".")
    thing = getattr(getattr(lv, owner), method) if method else getattr(lv, owner)
    return not callable(thing) or ">>> " in (inspect.getdoc(thing) or "")  # properties say what they hold


def test_what_is_called_has_an_example() -> None:
    assert [name for name in WITH_AN_EXAMPLE if not has_an_example(name)] == []
