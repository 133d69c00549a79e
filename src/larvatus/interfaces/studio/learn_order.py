"""What Learn is asked for: a file, a model, a few choices; and what the process that trains is told of it.

asked = msgspec.json.decode(body, type=LearnRequest)
order = LearnOrder(task="classify", model="runs/law", train="…/reviews.csv", out="runs/studio/reviews")
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
"""Of a file that is learnt from here; larger ones are for `larvatus finetune`."""
ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".jsonl", ".json")
LONGEST_NAME = 40
EPOCHS, BATCH = whole(1, 1_000), whole(1, 1_024)


class Choices(Settings):
    """How it is trained; what is left out is chosen as `larvatus finetune` does."""

    epochs: Annotated[int, EPOCHS] | None = None
    rate: LearningRate | None = None
    batch: Annotated[int, BATCH] | None = None
    trained: Literal["all", "head", "last2", "lora"] | None = None
    seed: Seed | None = None

    def settings(self) -> dict[str, Any]:
        """Those that were made, as `larvatus.finetune` takes them."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not None}


class FileGiven(Settings):
    """A small file of labelled examples, as text."""

    text: str
    name: str = "pasted.txt"
    """Of the file; its ending says what it holds, a path before it is left out."""
    task: str | None = None
    """None: as it looks."""
    errors: Errors = "refuse"
    """Rows that cannot be used, such as those without text or label: refuse the file, or skip them."""

    def checked_name(self) -> str:
        """The name that the file gets here."""
        last = PurePosixPath(self.name.replace("\\", "/")).name
        ending = PurePosixPath(last).suffix.lower()
        if ending not in ENDINGS:
            raise UsageError(
                f"{last!r} cannot be learnt from here: give text that ends in {', '.join(ENDINGS)}; of other files, "
                "larvatus finetune reads more"
            )
        return f"{slug(PurePosixPath(last).stem)}{ending}"

    def check_size(self) -> None:
        size = len(self.text.encode("utf-8", errors="surrogatepass"))
        if size > MOST_BYTES:
            raise UsageError(
                f"{size:,} bytes are too many to learn from here, {MOST_BYTES:,} at most; use larvatus finetune"
            )
        if not self.text.strip():
            raise UsageError("there is nothing in it; give labelled examples")


class LearnRequest(FileGiven):
    """The same, with the model that is to learn it."""

    model: str | None = None
    """As the server calls it; None: the first."""
    choices: Choices = Choices()


class LearnOrder(Settings):
    """What the process that trains is told."""

    task: str
    model: str
    """Its directory."""
    train: str
    out: str
    choices: Choices = Choices()
    errors: Errors = "refuse"
    device: str = "auto"
    resume: bool = False


def slug(name: str) -> str:
    """A name for a folder and an address.

    >>> slug("Film reviews (2024)"), slug("../..")
    ('film-reviews-2024', 'examples')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_NAME].strip("-") or "examples"
