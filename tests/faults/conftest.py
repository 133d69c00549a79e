"""Commands as a user gives them, in this process."""

import pytest

from larvatus.cli.main import run
from tests.conftest import SMALL
from tests.faults import begun

SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture
def larvatus(capsys):
    """Run a command in this process: its exit code and the one line it complained with."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            run([str(a) for a in arguments])
        said = capsys.readouterr().err.strip()
        assert "Traceback" not in said
        assert "\n" not in said, said
        return ended.value.code, said

    return call


@pytest.fixture
def pretrain(larvatus, tmp_path):
    def call(corpus, *more, steps=2):
        return larvatus(
            *("pretrain", "bert", *SETTINGS, "--corpus", corpus, "--out", tmp_path / "run", "--steps", steps), *more
        )

    return call


@pytest.fixture
def call(capsys):
    """The same with more to look at: exit code, output, complaint."""

    def made(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run([str(word) for word in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(ended.value.code or 0), said.out, said.err.strip()

    return made


@pytest.fixture
def begin(call, tmp_path, monkeypatch, save_tiny, tiny_model):
    """Begin a run of a kind and interrupt it: begin("embed")."""
    begun.SAVE["tiny"] = (save_tiny, tiny_model)
    return lambda kind, **options: begun.RUNS[kind](tmp_path, call, monkeypatch, **options)
