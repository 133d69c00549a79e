"""``python -m larvatus …`` (and ``torchrun -m larvatus …``) is the `larvatus` command."""

from larvatus.cli.main import run

run()
