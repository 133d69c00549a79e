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
from tests.interfaces.keyword_types import TARGET, generate

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
    'lv.bench("bert", recipe="bert")': '"bench" gets multiple values for keyword argument "recipe"',
}


def test_the_keyword_types_are_those_of_the_settings_structs():
    def shape(source: str) -> str:
        return ast.unparse(ast.parse(source))

    assert shape(TARGET.read_text(encoding="utf-8")) == shape(generate()), "run: make keywords"


def test_no_public_function_takes_untyped_keywords():
    loose = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in (SOURCE / "interfaces" / "api").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name in larvatus.__all__ and not node.name.startswith("_")
        if node.args.kwarg is not None and not _typed(node)
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
