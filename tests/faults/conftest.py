"""Commands as a user gives them, in this process."""

import pytest

from larvatus.cli.main import run
from tests.conftest import SMALL
from tests.faults.forked import Forked

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


@pytest.fixture(scope="session")
def forked():
    """Run a command in a process of its own, which is killed where it hangs (`forked.py`)."""
    with Forked() as run_command:
        yield run_command
