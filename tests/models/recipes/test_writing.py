"""`larvatus recipes show … > mine.toml`: a file that `pretrain mine.toml` takes for the same recipe."""

import itertools
import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from larvatus.interfaces.cli.main import run
from larvatus.models.recipes import SIZES, annotated_recipe, read_recipe, recipe_names, recipe_toml
from larvatus.models.recipes.annotated import CHAPTER


@pytest.fixture
def shown(capsys):
    def show(*words):
        with pytest.raises(SystemExit) as ended:
            run(["recipes", "show", *words])
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out

    return show


@pytest.mark.parametrize("size", [None, *SIZES])
@pytest.mark.parametrize("name", recipe_names())
def test_what_is_shown_at_any_size_is_the_same_recipe_as_a_file(name, size, shown, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(shown(name, *(["--size", size] if size else [])), encoding="utf-8")
    again = msgspec.structs.replace(read_recipe(str(path)), name=name)  # the file as written has no name but its own
    assert again == read_recipe(name, size=size)


def test_settings_of_every_kind_come_through_and_pretrain_takes_the_file(shown, tmp_path):
    settings = [
        "model.layers=1",
        "model.init=5e-3",
        "tokenizer.lowercase=false",
        'about="Ünïcode \\"quoted\\" \\u0007"',
    ]
    path = tmp_path / "mine.toml"
    path.write_text(shown("bert", "--size", "tiny", *(w for s in settings for w in ("--set", s))), encoding="utf-8")
    assert read_recipe(str(path)) == read_recipe("bert", size="tiny", settings=settings)
    assert read_recipe(str(path)).about == 'Ünïcode "quoted" \x07'
    assert shown(str(path)) == path.read_text(encoding="utf-8")
    with pytest.raises(
        SystemExit
    ) as ended:  # the recipe is read first; the text that is missing stops it, not the file
        run(["pretrain", str(path), "--corpus", str(tmp_path / "absent"), "--out", str(tmp_path / "run")])
    assert ended.value.code == 4


def test_json_is_there_for_programs(shown):
    assert json.loads(shown("bert", "--size", "tiny", "--json"))["model"]["layers"] == 2


def test_the_writer_is_read_back_by_the_standard_library():
    recipe = read_recipe("electra", size="base")
    plain = tomllib.loads(recipe_toml(recipe))
    assert [one["type"] for one in plain["objectives"]] == ["masked-lm", "replaced-tokens"]
    assert plain["phases"][0]["length"] == 512


@pytest.mark.parametrize("size", [None, "tiny"])
@pytest.mark.parametrize("name", recipe_names())
def test_an_annotated_recipe_is_the_same_recipe_and_explains_every_line(name, size):
    text = annotated_recipe(name, size=size)
    assert tomllib.loads(text) == tomllib.loads(recipe_toml(read_recipe(name, size=size)))
    lines = text.splitlines()
    for before, line in itertools.pairwise(lines):
        if " = " in line and not line.startswith(("#", "type = ", "name = ")):
            assert before.startswith("# "), line
    for header in (place for place, line in enumerate(lines) if line.startswith("[")):
        assert lines[header - 1].startswith("#"), lines[header]
    assert max(len(line) for line in lines if not line.startswith("#     ")) <= 120


def test_an_annotated_recipe_names_equation_page_note_and_what_a_size_changes(shown):
    spans = shown("spanbert", "--annotated")
    assert "equations 11.17 to 11.20 (docs/chapter/objectives.md)" in spans
    assert "#     s_i = FFN([z_{s-1}; z_{e+1}; p_{i-s+1}])" in spans
    assert "# Here: one draw for a whole span\nmask = 0.8" in spans  # its own note
    assert "# Here: steps, in runs so short that the share would give fewer" in spans  # BERT's, on a line it inherits
    assert "Google's code" not in spans  # BERT's, on a line that it has itself
    assert "# Set by --size or --set; the recipe has 256.\nbatch = 64" in shown("bert", "--annotated", "--size", "tiny")


def test_notes_of_an_own_recipe_and_of_its_base_are_shown(shown, tmp_path):
    (tmp_path / "base.toml").write_text('base = "bert"\nbatch = 12   # of "a" #1\n[corruption]\nrate = 0.2   # more\n')
    mine = tmp_path / "mine.toml"
    mine.write_text('# Mine.\nbase = "base.toml"\nabout = "a # b"\nmodel.layers = 3    # few\n    # and quick\n')
    text = shown(str(mine), "--annotated")
    assert text.startswith("# Mine.\n")
    assert '# Here: of "a" #1\nbatch = 12' in text
    assert "# Here: more\nrate = 0.2" in text
    assert "# Here: few and quick\nlayers = 3" in text
    assert tomllib.loads(text)["about"] == "a # b"


def test_the_pages_of_the_chapter_that_recipes_name_exist():
    docs = Path(__file__).parents[3] / "docs" / "chapter"
    assert {where.rpartition("; ")[2] for where in CHAPTER.values()} <= {page.name for page in docs.glob("*.md")}


def test_json_has_no_comments(capsys):
    with pytest.raises(SystemExit) as ended:
        run(["recipes", "show", "bert", "--annotated", "--json"])
    assert ended.value.code == 2
    assert "leave out --annotated or --json" in capsys.readouterr().err
