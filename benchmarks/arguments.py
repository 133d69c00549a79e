"""The command line of a benchmark, from the defaults of its options.

given = arguments(__doc__, batch=64, representation=("mean", "boundaries"), device="cpu")
given.batch, given.representation                # --batch 32 --representation boundaries
"""

from __future__ import annotations

import argparse


def arguments(description: str | None, **defaults: int | float | str | tuple[str, ...]) -> argparse.Namespace:
    """Options of the types of their defaults; of several words, one may be chosen, the first by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            parser.add_argument(flag, default=default[0], choices=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()
