"""The demo: each part, its page, and a run that ends when it must, however slow the machine."""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from pathlib import Path

import pytest

import larvatus as lv
from larvatus.interfaces.cli.commands.demo import MODULES, _change, documented_functions
from larvatus.interfaces.cli.main import run
from larvatus.training.engine.reporter import Deadline
from tests import warm

ROOT = Path(__file__).parents[3]


def test_a_deadline_takes_steps_away_where_they_would_be_late_and_ends_in_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline, steps = Deadline(160.0), 100
    for step in range(1, 51):  # half a second each: no reason to take any away
        steps = deadline.steps(step, steps)
        now[0] += 0.5
    assert steps == 100
    step = 50
    while step < steps:  # the machine is ten times slower from here
        step += 1
        now[0] += 5.0
        steps = deadline.steps(step, steps)
    assert now[0] <= 165.0
    assert 50 < step < 100


def test_the_quick_parts_want_nothing_that_a_plain_installation_lacks(tmp_path):
    """`make demo` installs no extra; here all of them are hidden."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [line for extra in project["optional-dependencies"].values() for line in extra]
    names = {re.split(r"[\[<>=; ]", line)[0].replace("-", "_") for line in wanted} | {"sklearn", "umap"}
    hidden = sorted(names - {"pandas"})  # pyarrow takes the None of an unknown module for pandas itself
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({hidden!r}))\n"
        "class NoPandas:\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPandas)\n"
        "import larvatus as lv\n"
        "from pathlib import Path\n"
        "from larvatus.interfaces.cli.commands import demo\n"
        "demo.MODULES, demo.QUESTIONS = ('calendar',), ('is it a leap year?',)\n"
        "model, report = lv.load(device='cpu'), demo.DemoReport(print, lambda name, html: print(name, html[:1]))\n"
        "demo.show_blanks(model, report)\n"
        f"demo.show_search(model, report, out=Path({str(tmp_path)!r}))\n"
        "demo.show_senses(model, report)\n"
    )
    done = warm.run_bare([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\n      capital 9" in done.stdout
    assert "\n      calendar.isleap: " in done.stdout
    within, between = map(float, re.findall(r"(0\.\d\d) (?:within|between)", done.stdout))
    assert within > between
    assert done.stdout.rstrip().endswith("Two senses of bank <")


def test_the_functions_are_those_of_the_modules_with_their_first_paragraph():
    rows = dict(documented_functions())
    assert rows["shutil.rmtree"] == "Recursively delete a directory tree."
    assert {name.rpartition(".")[0] for name in rows} == set(MODULES)
    assert not [name for name in rows if name.rpartition(".")[2].startswith("_")]


def test_before_and_after_are_those_of_the_held_out_masked_words(tmp_path):
    lines = [
        {"kind": "train", "step": 1, "loss": 9.0},
        {"kind": "domain", "objective": "next-sentence", "loss before": 1, "loss after": 1},
        {
            "kind": "domain",
            "objective": "masked-lm",
            "loss before": 1.9154,
            "loss after": 1.8471,
            "accuracy before": 0.6255,
            "accuracy after": 0.637,
        },
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert _change(tmp_path) == [
        ("masked-token loss", "1.915", "1.847"),
        ("masked-token perplexity", "6.79", "6.34"),
        ("masked-token accuracy", "62.5%", "63.7%"),
    ]


@pytest.mark.proof  # a minute or two of training
def test_the_whole_demo_ends_with_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run(["demo", "--minutes", "1.5"])
    printed = capsys.readouterr().out
    assert not ended.value.code
    assert re.search(r"entity F1 0\.[789]", printed)
    assert "→" in printed or "too slow or too busy" in printed
    page = Path("runs/demo/index.html").read_text(encoding="utf-8")
    for shown in ("Paris is the", "shutil.rmtree", "Two senses of bank", "Marta Keller"):
        assert shown in page
    assert "<script" not in page
    assert lv.load("runs/demo/tagger")("Marta Keller left Hamburg.").entities
