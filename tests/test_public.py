"""The public interface is what `larvatus.__all__` says, and the command line has the flags it is known to have."""

import subprocess
import sys

import typer

import larvatus
from larvatus.cli.main import app

PUBLIC = {
    *("Fill", "Fills", "JointFill", "LarvatusError", "Model", "Recipe", "TokenBatch", "Tokenizer"),
    *("__version__", "load", "read_recipe"),
}


def test_the_public_interface_is_this_and_no_more():
    assert set(larvatus.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(larvatus, name) is not None


def test_importing_the_package_or_a_text_room_does_not_load_torch():
    code = (
        "import sys, larvatus, larvatus.text.tokenizer, larvatus.text.readers, larvatus.corpus.encode; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def flags():
    """Every command with the options it takes."""
    found = {}

    def walk(command, path):
        found[path] = sorted(opt for p in command.params for opt in [*p.opts, *p.secondary_opts] if opt.startswith("-"))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}".strip())

    walk(typer.main.get_command(app), "larvatus")
    return found


def test_row_65_no_flag_slips_in_unseen():
    """Fault 65: a new flag must be added here, on purpose."""
    seen = {command: " ".join(options) for command, options in flags().items()}
    assert seen == KNOWN_FLAGS


KNOWN_FLAGS = {
    "larvatus": "--version",
    "larvatus demo": "--minutes --out --seed --size",
    "larvatus pretrain": (
        "--compile --corpus --deterministic --device --epochs --evaluate-every --fork --language "
        "--licence --microbatch --minutes --no-compile --on-bad --out --precision --resume "
        "--save-every --seed --sentences --set --size --split --steps --tensorboard --text-field "
        "--valid --workers"
    ),
    "larvatus fill": "--beam --device --joint --json --marginals --model --top --words-only",
    "larvatus doctor": "--json",
    "larvatus recipes": "--json",
    "larvatus recipes show": "--json --set --size",
    "larvatus tokenizer": "",
    "larvatus tokenizer train": "--cased --json --lowercase --on-bad --out --size --split --text-field --type",
    "larvatus tokenizer show": "--json",
    "larvatus corpus": "",
    "larvatus corpus build": (
        "--json --language --language-field --licence --on-bad --out --sentences --split "
        "--text-field --tokenizer --workers"
    ),
    "larvatus corpus show": "--json",
    "larvatus corpus verify": "--json",
}
