"""Public functions have typed keywords: a type checker completes them and refuses a wrong name or type."""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import larvatus
from tests.interfaces.keyword_types import METHODS_TARGET, TARGET, generate, generate_methods

SOURCE = Path(larvatus.__file__).parent
RIGHT = """
    import larvatus as lv

    model = lv.pretrain("bert", corpus="texts", out=Path("run"), size="tiny", steps=10, settings={"model.layers": 2})
    classifier = lv.finetune("classify", model, train="train.csv", epochs=3, trained="lora", text="body", seeds=3)
    accuracy: float = lv.evaluate(classifier, data="test.csv", samples=100).metrics["accuracy"].value
    lv.evaluate("run", corpus="held_out.txt", tokens=1_000, language="sw").rows()
    lv.compare(["bert", "gpt"], corpus="texts", out="both", tokens=10**6, seeds=[1, 2], then={"classify": "sst2"})
    lv.build_corpus("texts", tokenizer="run", out="corpus", filter=["exact"], canaries=3, ray="auto")
    lv.embed_files(model, "texts", out="v.parquet", unit="word", standardise=Path("z.safetensors"))
    lv.audit_bias(model, pairs="pairs.csv", samples=100, progress=lambda what, done, total: None)
    lv.prompt(model, words={"a": "good"}, data="test.tsv", k=0).rows
    with lv.serve_models(model, port=8000, key_file=Path("key")) as address:
        lv.Client(address)
    loaded = lv.load("run")
    loaded.embed("the river", unit="word", normalise=True, standardise="z", precision="bf16").shape
    loaded.vectors(["the river"], unit="span", spans=[[(0, 3)]], layers=[0.5, 0.5])[0].units
    loaded.nearest("the *bank*", "texts", top=3, any_word=True, text="body").hits
    loaded.map("river", "texts", limit=10, method="pca", clusters=1, layers="last4").points
    loaded.generate("the river", max_tokens=3, stop="end", top_p=0.9).prompt
    loaded("the river", merge="max", batch_tokens=100)
    loaded.predict(["the river", "the town"], length=128, top=2)[0]
    loaded.fill("the [MASK]", top=3)[0].token
    loaded.prompt("the river", {"wet": "wide", "dry": "deep"}, pattern="null", calibrate=True).label
"""
WRONG = {
    'lv.pretrain("bert", corpus="t", out="o", stepz=3)': 'Unexpected keyword argument "stepz" for "pretrain"',
    'lv.pretrain("bert", corpus="t", out="o", steps="3")': 'Argument "steps" to "pretrain" has incompatible type "str"',
    'lv.pretrain("bert", corpus="t", out="o", split="line")': 'Argument "split" to "pretrain" has incompatible type',
    'lv.finetune("tag", train="t", epoch=3)': 'Unexpected keyword argument "epoch" for "finetune"',
    'lv.finetune("tag", train="t", scheme="IOB9")': 'Argument "scheme" to "finetune" has incompatible type',
    'lv.train_tokenizer("t", kind="words")': 'Argument "kind" to "train_tokenizer" has incompatible type',
    'lv.check_data("t", column="a")': 'Unexpected keyword argument "column" for "check_data"',
    'lv.audit_leaks("run", members="a", held_out="b", mask=3)': 'Unexpected keyword argument "mask" for "audit_leaks"',
    'lv.evaluate("run", data="t", sample=3)': 'Unexpected keyword argument "sample" for overloaded function "evaluate"',
    'lv.load("run").embed("the river", normalize=True)': 'Unexpected keyword argument "normalize" for "embed"',
    'lv.load("run").embed("the river", precision="fp64")': 'Argument "precision" to "embed" of "EncoderModel" has',
    'lv.load("run").vectors("the river", unit="words")': 'No overload variant of "vectors" of "EncoderModel" matches',
    'lv.load("run").nearest("a *b*", "texts", tops=3)': 'Unexpected keyword argument "tops" for overloaded function',
    'lv.load("run").map("river", "texts", method="tsne")': 'Argument "method" to "map" of "EncoderModel" has',
    'lv.load("run").generate("the river", max_tokens="3")': 'No overload variant of "generate" of "Model" matches',
    'lv.load("run")("the river", merge="sum")': 'No overload variant of "__call__" of "Model" matches',
    'lv.load("run").predict("the river", tokens=3)': 'Unexpected keyword argument "tokens" for overloaded function',
    'lv.bench("bert", recipe="bert")': '"bench" gets multiple values for keyword argument "recipe"',
}


def test_the_keyword_types_are_those_of_the_settings_structs():
    def shape(source: str) -> str:
        return ast.unparse(ast.parse(source))

    for target, source in ((TARGET, generate()), (METHODS_TARGET, generate_methods())):
        assert shape(target.read_text(encoding="utf-8")) == shape(source), "run: make keywords"


def test_no_public_function_takes_untyped_keywords():
    loose = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in (SOURCE / "interfaces" / "api").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name in larvatus.__all__ and not node.name.startswith("_")
        if node.args.kwarg is not None and not _typed(node)
    ]
    assert loose == []


def test_no_public_method_of_a_model_takes_untyped_keywords():
    loose = [
        f"{kind.name}.{node.name}"
        for name in ("encoder.py", "interpretable.py", "model.py")
        for kind in ast.parse((SOURCE / "inference" / "model" / name).read_text(encoding="utf-8")).body
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None
        if re.match(r"_[^_]", node.name) is None and not _typed(node)
    ]
    assert loose == []


def _typed(node: ast.FunctionDef) -> bool:
    """Whether keywords are `Unpack[…]`, or `object` below overloads that name them."""
    assert node.args.kwarg is not None
    return re.match(r"Unpack\[|object$", ast.unparse(node.args.kwarg.annotation)) is not None


CONFIG = """[mypy]
follow_imports = skip
hide_error_context = True
[mypy-larvatus,larvatus.interfaces.api.*,larvatus.interfaces.settings,larvatus.data.labelled.problems]
follow_imports = silent
[mypy-larvatus.inference.model,larvatus.inference.model.*,larvatus.inference.vectors.layers]
follow_imports = silent
"""
"""Only the public signatures are read, which takes seconds; what they name of other modules is Any."""


def test_a_type_checker_takes_right_calls_and_refuses_wrong_ones(tmp_path):
    pytest.importorskip("mypy")
    script = "from pathlib import Path\n" + textwrap.dedent(RIGHT) + "\n".join(WRONG) + "\n"
    first = script.splitlines().index(next(iter(WRONG))) + 1
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-incremental", "script.py"]
    environment = {**os.environ, "MYPYPATH": str(SOURCE.parent)}
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    errors: dict[int, str] = {}
    for line in checked.stdout.splitlines():
        _, number, kind, message = line.split(":", 3)
        if kind.strip() == "error":
            errors.setdefault(int(number), message)
    assert sorted(errors) == list(range(first, first + len(WRONG))), checked.stdout + checked.stderr
    for number, message in enumerate(WRONG.values(), start=first):
        assert message in errors[number]
