"""``python -m larvatus …`` (and ``torchrun -m larvatus …``) is the `larvatus` command.

Light on purpose: streams are put in order, and Ctrl-C and faults are answered, before anything large is imported.
"""

import os

from larvatus.interfaces.cli.crash_report import reporting_crashes, stopping_at_once
from larvatus.interfaces.cli.streams import take_over


def main() -> None:
    """Entry point of the `larvatus` command."""
    take_over()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # one line reports a lost rank; torch prints forty
    with reporting_crashes():
        with stopping_at_once():
            from larvatus.interfaces.cli.main import run
        run()


if __name__ == "__main__":
    main()
