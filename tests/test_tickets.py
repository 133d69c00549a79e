"""docs/tickets.md, the story of a newcomer with a table, is executed as it is: its Python, its commands, its output."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from larvatus.interfaces.cli.main import run
from tests import warm
from tests.patience import WATCHDOG_S
from tests.tickets import write_tickets

PAGE = Path(__file__).parents[1] / "docs" / "tickets.md"
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def steps(part: str, page: Path = PAGE) -> Iterator[tuple[str, str]]:
    """Code of a section, and what the page shows that it prints; nothing where it shows nothing."""
    _, heading, section = page.read_text(encoding="utf-8").partition(f"\n## {part}\n")
    assert heading, f"{page.name} has no section {part}"
    blocks = BLOCK.findall(section.partition("\n## ")[0])
    for number, (kind, code) in enumerate(blocks):
        if kind != "text":
            follows = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            yield code, follows[1] if follows[0] == "text" else ""


def check_output(wanted: str, got: str) -> None:
    same = not wanted or doctest.OutputChecker().check_output(wanted, got, FLAGS)
    assert same, f"the page shows\n{wanted}\nbut it prints\n{got}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the help desk, which is the current one."""
    write_tickets(tmp_path / "tickets.csv", 400, seed=1, first=1000)
    write_tickets(tmp_path / "new.csv", 80, seed=2, first=1400)
    assert (tmp_path / "tickets.csv").read_bytes().startswith(b"\xef\xbb\xbfid;opened;channel;body;topic\r\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.proof  # the commands tell the same story
def test_the_story_in_python(desk: Path) -> None:
    names: dict[str, Any] = {}
    for code, shown in steps("In Python"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(PAGE), "exec"), names)
        check_output(shown, printed.getvalue())
    assert names["scores"].metrics["accuracy"].low > 0.8
    assert names["model"].scores["accuracy"] > 0.8
    assert (desk / "guessed.csv").read_text(encoding="utf-8").startswith("id,opened,channel,body,topic,guess\n")
    metrics = (desk / "runs" / "tickets" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line)["kind"] == "valid" for line in metrics)


def run_commands(
    parts: Iterable[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    *,
    ends: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """Run the commands of a page, and compare what they print with what it shows; the commands by name.

    `ends` has the exit codes of those that do not end with 0.
    """
    names = []
    with contextlib.ExitStack() as running:
        port = ""
        for code, shown in parts:
            printed = ""
            for line in code.splitlines():
                command, *words = shlex.split(line)
                names.append(command)
                if command == "curl":
                    printed += ask(words, port)
                elif words[0] == "serve":
                    port = running.enter_context(served(words))
                else:
                    with pytest.raises(SystemExit) as ended:
                        run(words)
                    captured = capsys.readouterr()
                    printed += captured.out + captured.err
                    assert ended.value.code == ends.get(words[0], 0), printed
            check_output(shown, printed)
    return names


def test_the_story_by_commands(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_commands(steps("With commands"), capsys, ends={"data": 4})


@contextlib.contextmanager
def served(words: list[str]) -> Iterator[str]:
    """`larvatus serve` in a process, on a port that is free here in place of the page's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [port if before == "--port" else word for before, word in zip(["", *words], words, strict=False)]
    command = [sys.executable, "-m", "larvatus", *words]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert f"on http://127.0.0.1:{port}" in server.stdout.readline()
            yield port
        finally:
            server.terminate()
            server.wait(WATCHDOG_S)


def ask(words: list[str], port: str) -> str:
    """What `curl` does with these words."""
    address = next(word for word in words if word.startswith("http://"))
    header = words[words.index("-H") + 1].split(": ")
    address = re.sub(r":\d+/", f":{port}/", address)
    request = urllib.request.Request(address, words[words.index("-d") + 1].encode(), dict([header]))
    with urllib.request.urlopen(request, timeout=WATCHDOG_S) as answer:
        return str(answer.read().decode())
