"""`larvatus recipes show … > mine.toml`: a file that `pretrain mine.toml` takes for the same recipe."""

import json
import tomllib

import msgspec
import pytest

from larvatus.interfaces.cli.main import run
from larvatus.models.recipes import SIZES, read_recipe, recipe_names, recipe_toml


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
