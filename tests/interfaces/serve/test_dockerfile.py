"""What can be known of the image without building it: its files exist, its commands parse, its health check works."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import pytest

from larvatus.inference.model import load
from larvatus.interfaces.serve.settings import ServeSettings
from tests.interfaces.serve.running import Running

ROOT = Path(__file__).parents[3]


def instructions() -> list[tuple[str, str]]:
    """Each with its argument, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def arguments(wanted: str) -> list[str]:
    return [argument for word, argument in instructions() if word == wanted]


def test_it_has_stages_and_ends_as_a_user_without_rights() -> None:
    words = [word for word, _ in instructions()]
    known = "ARG COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK RUN STOPSIGNAL USER WORKDIR"
    assert set(words) <= set(known.split())
    assert words.count("FROM") == 2
    last = instructions()[len(words) - 1 - words[::-1].index("FROM") :]
    user = next(argument for word, argument in last if word == "USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert f"--uid {user} " in " ".join(argument for word, argument in last if word == "RUN")
    minor = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert all(f"python:{minor.removeprefix('>=')}-slim" in image for image in arguments("FROM"))


def test_what_it_copies_exists_and_reaches_the_builder() -> None:
    """.dockerignore is `*` and exceptions to it: the last line that matches decides."""
    rules = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert rules[0] == "*"
    sources = [name for copy in arguments("COPY") if "--from" not in copy for name in copy.split()[:-1]]
    assert {"pyproject.toml", "constraints.txt", "src"} <= set(sources)
    for name in sources:
        assert (ROOT / name).exists()
        assert [rule for rule in rules if fnmatch(name, rule.removeprefix("!"))][-1] == f"!{name}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= set(sources)  # the build of the package reads them
    extras = re.search(r'"\.\[(\w+)\]"', " ".join(arguments("RUN")))
    assert extras is not None
    assert extras[1] in project["optional-dependencies"]


def test_its_commands_parse() -> None:
    for command in arguments("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)
    program, command, *rest = json.loads(arguments("ENTRYPOINT")[0])
    assert (program, command) == ("larvatus", "serve")
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    settings = msgspec.convert(
        {flag.removeprefix("--").replace("-", "_"): value for flag, value in given.items()}, ServeSettings, strict=False
    )
    assert settings.key_file is not None  # every key is refused until some are mounted there
    assert str(settings.port) == arguments("EXPOSE")[0] == str(ServeSettings().port)


def test_its_health_check_asks_a_server_that_is_well_or_gone(tiny_directory: Path) -> None:
    options, _, command = arguments("HEALTHCHECK")[0].partition("CMD ")
    assert "--start-period" in options
    python, flag, code = json.loads(command)
    assert (python, flag) == ("python", "-c")

    def check(port: int) -> Any:
        exec(compile(code.replace(str(ServeSettings().port), str(port)), "healthcheck", "exec"), {})

    with Running([load(tiny_directory, device="cpu")]) as running:
        check(running.port)
    with pytest.raises(OSError, match="refused"):
        check(running.port)
