"""Help and completion: quick, grouped, and true to the commands; nothing large is imported to show them."""

import os
import platform
import resource
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from larvatus.interfaces.cli.command_list import COMMANDS
from larvatus.interfaces.cli.main import app, run
from tests import warm

LARGE = ("torch", "numpy", "pyarrow", "tokenizers", "msgspec")


def cpu_seconds(*command):
    """CPU time of a program: what else the machine does has no part in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_less_than_a_quarter_of_importing_torch():
    """The better of two."""
    help = min(cpu_seconds("-m", "larvatus", "--help") for _ in range(2))
    assert help < cpu_seconds("-c", "import torch") / 4


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["--install-completion", "--help"]])
def test_help_and_version_import_nothing_large(words):
    code = (
        "import sys\n"
        f"sys.argv = ['larvatus', *{words!r}]\n"
        "from larvatus.__main__ import main\n"
        "try: main()\n"
        f"except SystemExit as ended: print([m for m in {LARGE} if m in sys.modules], ended.code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[] 0\n"
    assert done.stdout


def test_the_list_says_what_the_commands_say_themselves():
    for name, command in typer.main.get_command(app).commands.items():
        said = " ".join(command.help.split("\n\n")[0].split())
        assert said.startswith(COMMANDS[name].help), name


def complete(*lines, run=subprocess.run):
    """What bash would be told to offer at the end of each line, and whether torch was imported for it."""
    code = (
        "import os, sys\nsys.argv = ['larvatus']\nfrom larvatus.__main__ import main\n"
        f"for line in {lines}:\n"
        "    os.environ |= {'COMP_WORDS': line, 'COMP_CWORD': str(line.count(' '))}\n"
        "    try: main()\n"
        "    except SystemExit as ended: print('|', ended.code, 'torch' in sys.modules, '|')\n"
    )
    environment = os.environ | {"_LARVATUS_COMPLETE": "complete_bash"}
    done = run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    said = done.stdout.split("|")
    return [(offered.split(), ended.split()) for offered, ended in zip(said[::2], said[1::2], strict=False)]


def test_a_shell_completes_commands_without_importing_them():
    some, every = complete("larvatus pre", "larvatus ")
    assert some == (["pretrain", "predict"], ["0", "False"])
    assert every == (list(COMMANDS), ["0", "False"])


def test_a_shell_completes_commands_of_a_group_options_and_choices():
    lines = ("larvatus corpus b", "larvatus corpus build --on-", "larvatus corpus build --on-bad ")
    offered = complete(*lines, run=warm.run)
    assert [words for words, _ in offered] == [["build"], ["--on-bad"], ["fail", "skip"]]


def test_the_completion_script_calls_the_program():
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "larvatus", "--show-completion", "bash"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert "_LARVATUS_COMPLETE=complete_bash" in shown.stdout
    assert "complete -o default -F _larvatus_completion larvatus" in shown.stdout


def test_alone_it_greets_in_five_lines_that_name_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        run([])
    lines = capsys.readouterr().out.splitlines()
    assert (ended.value.code, len(lines)) == (0, 5)
    assert max(map(len, lines)) <= 80
    for line in lines[1:]:
        program, command, *_ = line.split()
        assert program == "larvatus"
        assert command in {*COMMANDS, "--help"}


def test_the_report_for_a_bug_has_versions_and_nothing_private(capsys, tmp_path, monkeypatch):
    home = tmp_path / "home" / "a.person"
    (home / "secret-project").mkdir(parents=True)
    monkeypatch.chdir(home / "secret-project")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "a.person")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    Path("larvatus-report-20261119-040825-11325.txt").write_text("private")
    with pytest.raises(SystemExit) as ended:
        run(["doctor", "--report"])
    report = capsys.readouterr().out
    assert ended.value.code == 0
    private = ("a.person", "secret-project", str(tmp_path), sys.prefix, socket.gethostname())
    assert not [name for name in private if name and name in report]
    for shown in (version("torch"), platform.python_version(), "OMP_NUM_THREADS 3", "larvatus-report-20261119-040825"):
        assert shown in report
    assert "private" not in report
    with pytest.raises(SystemExit) as ended:
        run(["doctor", "--report", "--json"])
    assert ended.value.code == 2
