"""Requests of Learn (a file, a model, a few options), and the job that the training process gets.

request = msgspec.json.decode(body, type=LearnRequest)
job = LearnJob(task="classify", model="runs/law", train="…/reviews.csv", out="runs/studio/reviews")
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from larvatus.core.errors import UsageError
from larvatus.core.ranges import LearningRate, Seed, whole
from larvatus.core.settings import Settings
from larvatus.data.labelled.problems import Errors

MOST_BYTES = 2_000_000
"""Most bytes of a file that Learn trains on; larger ones are for `larvatus finetune`."""
ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".jsonl", ".json")
LONGEST_NAME = 40
EPOCHS, BATCH = whole(1, 1_000), whole(1, 1_024)


class LearnOptions(Settings):
    """Training options; None for the defaults of `larvatus finetune`."""

    epochs: Annotated[int, EPOCHS] | None = None
    rate: LearningRate | None = None
    batch: Annotated[int, BATCH] | None = None
    trained: Literal["all", "head", "last2", "lora"] | None = None
    seed: Seed | None = None

    def settings(self) -> dict[str, Any]:
        """The options that are set, as keywords of `larvatus.finetune`."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not None}


class LearnFile(Settings):
    """A small file of labelled examples, as text."""

    text: str
    name: str = "pasted.txt"
    """Name of the file. Its suffix is its format; a path before it is dropped."""
    task: str | None = None
    """Task; None to recognise it."""
    errors: Errors = "refuse"
    """What to do with unusable rows, such as those without text or label: refuse the file, or skip them."""

    def checked_name(self) -> str:
        """The name under which the file is stored."""
        last = PurePosixPath(self.name.replace("\\", "/")).name
        ending = PurePosixPath(last).suffix.lower()
        if ending not in ENDINGS:
            raise UsageError(
                f"{last!r} cannot be used here: give a file that ends in {', '.join(ENDINGS)}; "
                "larvatus finetune reads other formats"
            )
        return f"{slug(PurePosixPath(last).stem)}{ending}"

    def check_size(self) -> None:
        size = len(self.text.encode("utf-8", errors="surrogatepass"))
        if size > MOST_BYTES:
            raise UsageError(f"{size:,} bytes are too many here, {MOST_BYTES:,} at most; use larvatus finetune")
        if not self.text.strip():
            raise UsageError("the file is empty; give labelled examples")


class LearnRequest(LearnFile):
    """A file, with the model to fine-tune on it."""

    model: str | None = None
    """Name of a served model; None for the first."""
    choices: LearnOptions = LearnOptions()


class LearnJob(Settings):
    """The job of the training process."""

    task: str
    model: str
    """Directory of the model."""
    train: str
    out: str
    choices: LearnOptions = LearnOptions()
    errors: Errors = "refuse"
    device: str = "auto"
    resume: bool = False


def slug(name: str) -> str:
    """A name that is safe in a path and a URL.

    >>> slug("Film reviews (2024)"), slug("../..")
    ('film-reviews-2024', 'examples')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_NAME].strip("-") or "examples"
