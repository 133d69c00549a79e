"""`larvatus tutorial`: a page becomes a notebook whose cells are its blocks in their order, with the files it reads."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from larvatus.interfaces.cli.commands import tutorial
from larvatus.interfaces.cli.commands.tutorial import notebook, page_files, tutorial_pages
from larvatus.interfaces.cli.main import run
from tests.test_tickets import check_output

ROOT = Path(__file__).parents[3]


def command(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(list(words))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def sources(made, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == kind]


PAGE = """# A title

Some [words](../finetuning.md#pairs) and a [site](https://example.org), ![a picture](../pictures/bank.png).

```python
import larvatus as lv

print(1 + 1)
```

```text
2
```

## Commands

```sh
larvatus recipes
larvatus fill "a [MASK]"
```

```sh
larvatus serve english
```

```sh
curl -s http://127.0.0.1:8311/v1/fill
```

```json
{"a": 1}
```

```text
not an output
```

??? question "Solution"

    Think first.

    ```python
    if True:
        print("folded")
    ```

After it.

<details>
<summary>Another solution</summary>

```python
print("folded too")
```

</details>

The end.
"""


def test_blocks_become_cells_in_their_order():
    made = notebook(PAGE, files=["data.csv"])
    assert sources(made, "code") == [
        "import larvatus as lv\n\nprint(1 + 1)",
        '!larvatus recipes\n!larvatus fill "a [MASK]"',
        'if True:\n    print("folded")',
        'print("folded too")',
    ]
    text = "\n".join(sources(made, "markdown"))
    order = [
        "# A title",
        "`data.csv`",
        "## Commands",
        "larvatus serve",
        "curl",
        '{"a": 1}',
        "not an output",
        "**Solution**",
    ]
    places = [text.index(words) for words in [*order, "Think first", "After it", "**Another solution**", "The end"]]
    assert places == sorted(places)
    assert "Some words and a [site](https://example.org), *a picture*." in text
    assert "details>" not in text
    assert "???" not in text


def test_what_a_page_shows_is_the_output_of_the_cell_before_it():
    first, second, *solutions = [cell for cell in notebook(PAGE)["cells"] if cell["cell_type"] == "code"]
    assert first["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["2\n"]}]
    assert second["outputs"] == []
    assert [cell["metadata"] for cell in solutions] == [{"jupyter": {"source_hidden": True}}] * 2
    assert first["metadata"] == {}


def test_a_notebook_has_the_fields_of_its_format():
    """nbformat 4.5: every cell has an id of its own; source is a list of lines that keep their ends."""
    made = notebook(PAGE)
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in made["cells"]:
        assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", cell["id"])
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        assert set(cell) - {"cell_type", "id", "metadata", "source"} == (
            {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
        )


@pytest.mark.parametrize("page", tutorial_pages().values(), ids=lambda page: page.stem)
def test_every_page_is_a_notebook_with_its_python(page: Path):
    """As an independent reader sees the page: the lines between its fences, without their indentation."""
    inside, blocks = False, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("```"):
            inside = line.strip().startswith("```python")
            blocks += [""] * inside
        elif inside:
            blocks[-1] += line.strip() + "\n"
    made = notebook(page.read_text(encoding="utf-8"))
    cells = [cell for cell in sources(made, "code") if not cell.startswith("!larvatus")]
    assert blocks
    assert ["".join(f"{line.strip()}\n" for line in cell.splitlines()) for cell in cells] == blocks
    for cell in cells:
        ast.parse(cell)
    assert sources(made, "markdown")[0].startswith("# ")


def test_a_tutorial_is_written_with_its_files_and_replaces_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command(capsys, "tutorial", "entities")
    assert code == 0
    assert out.startswith("saved entities.ipynb, entities.conll, entities_test.conll\n")
    page = tutorial_pages()["entities"]
    assert json.loads(Path("entities.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    for file in page_files(page):
        assert Path(file.name).read_bytes() == file.read_bytes()
    Path("entities.ipynb").unlink()
    Path("entities.conll").write_text("mine\n")
    code, _, error = command(capsys, "tutorial", "entities")
    assert (code, error.count("\n")) == (5, 1)
    assert "entities.conll is there already" in error
    assert not Path("entities.ipynb").exists()
    assert command(capsys, "tutorial", "entities", "--overwrite")[0] == 0
    (tmp_path / "class").mkdir()
    assert command(capsys, "tutorial", "entities", "--out", "class/one.ipynb")[0] == 0
    assert {path.name for path in Path("class").iterdir()} == {"one.ipynb", "entities.conll", "entities_test.conll"}


def test_the_list_and_a_wrong_name(capsys):
    code, out, _ = command(capsys, "tutorial")
    assert code == 0
    assert all(name in out for name in tutorial_pages())
    assert max(map(len, out.splitlines())) <= 80
    code, _, error = command(capsys, "tutorial", "entitys")
    assert (code, error) == (2, "larvatus: there is no tutorial 'entitys'; did you mean entities?\n")
    assert command(capsys, "tutorial", "--out", "x.ipynb")[0] == 2


def test_an_installed_package_reads_its_own_pages(tmp_path, monkeypatch, capsys):
    (tmp_path / "pages" / "tutorials").mkdir(parents=True)
    (tmp_path / "pages" / "tutorials" / "only.md").write_text("# Only this\n\n```python\nprint(1)\n```\n")
    monkeypatch.setattr(tutorial, "PACKAGED", tmp_path / "pages")
    assert list(tutorial_pages()) == ["only"]
    assert "Only this" in command(capsys, "tutorial")[1]


def test_the_wheel_has_the_pages():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert wheel["sources"] == {"docs": "larvatus/pages"}
    assert wheel["only-include"] == [*wheel["packages"], *(f"docs/{place}" for place in tutorial.PLACES)]


def run_cell(code: str, names: dict[str, Any]) -> str:
    """What a cell prints; the value of its last line is shown as a notebook shows it."""
    parsed = ast.parse(code)
    shown = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(parsed, "cell", "exec"), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown.value), "cell", "eval"), names)
            assert value is None or "<" in value._repr_html_()
    return printed.getvalue()


def tutorials() -> list[Any]:
    """Names of the tutorials; most take a minute, and one is quick."""
    names = [name for name, page in tutorial_pages().items() if page.parent.name == "tutorials"]
    return [name if name == "lesson" else pytest.param(name, marks=pytest.mark.proof) for name in names]


@pytest.mark.parametrize("name", tutorials())
def test_a_tutorial_runs_as_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(capsys, "tutorial", name)[0] == 0
    names: dict[str, Any] = {}
    for cell in json.loads(Path(f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and code.startswith("!larvatus"):
            for line in code.splitlines():
                ended, _, error = command(capsys, *shlex.split(line)[1:])
                assert ended == 0, error
        elif cell["cell_type"] == "code":
            printed = run_cell(code, names)
            for output in cell["outputs"]:
                check_output("".join(output["text"]), printed)
