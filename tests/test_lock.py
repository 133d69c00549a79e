"""requirements.lock names every dependency once, by version and hash, as constraints.txt says. Nothing is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(path: Path) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package."""
    found: dict[str, tuple[str, int]] = {}
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for entry in re.split(r"\n(?! )", text.strip()):
        wanted = re.match(r"([\w.-]+)==([\w.+]+)( ; [^\\]+)? \\\n", entry)
        assert wanted is not None, entry
        assert plain(wanted[1]) not in found, wanted[1]
        found[plain(wanted[1])] = (wanted[2], len(HASH.findall(entry)))
    return found


def test_the_lock_covers_every_dependency_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    more = project["optional-dependencies"]
    wanted = {plain(re.split(r"[><=\[ ;]", one)[0]) for one in (*project["dependencies"], *more["test"], *more["lint"])}
    lock = locked(ROOT / "requirements.lock")
    assert wanted <= set(lock)
    assert all(hashes for _, hashes in lock.values())


def test_the_lock_agrees_with_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    lock = locked(ROOT / "requirements.lock")
    both = {plain(name) for name in pinned} & set(lock)
    assert len(both) > 30
    assert {name: lock[plain(name)][0] for name in pinned if plain(name) in both} == {
        name: version for name, version in pinned.items() if plain(name) in both
    }


def test_the_lock_names_no_place_to_fetch_from() -> None:
    for path in ROOT.glob("requirements*.lock"):
        assert not re.search(r"://|--index|--find-links|/opt|/home", path.read_text(encoding="utf-8"))
