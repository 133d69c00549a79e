"""`larvatus demo`: the packaged model at work, then a vocabulary and an encoder from text that every Python ships.

tour(load(device="cpu"), say)                          # blanks, two senses of *bank*, nearest words: seconds
punctuate("…/larvatus_english/model", say, seconds=90, seed=0)
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, cast

import numpy as np
import regex
import typer
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.files import saying_what_is_full
from larvatus.core.ranges import SEED
from larvatus.core.regular_files import is_there, refuse_link
from larvatus.data.text.embedded import embedded_documents
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.evaluating import evaluate
from larvatus.interfaces.api.finetuning import finetune
from larvatus.interfaces.cli.from_struct import MINUTES, ranged
from larvatus.interfaces.cli.output import Quiet, is_quiet
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.recipes import read_recipe
from larvatus.tasks.results import Tagged
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus, TextOptions, prepare
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.text_record import EMBEDDED

MARK = "demo.txt"
"""Marks the folder of a demo: the next demo replaces nothing else."""
TAGGER_S = 100.0
"""Seconds for the tagger of the packaged model."""
PATIENCE = 1.25
BLANKS = (
    "If the argument is [MASK], the function returns None.",
    "The [MASK] is raised when the file does not exist.",
    "Return a new [MASK] object.",
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run; an earlier demo is replaced.")] = Path("runs/demo"),
    size: Annotated[str, typer.Option(help="tiny, mini, …")] = "tiny",
    minutes: Annotated[float, ranged(MINUTES, help="Minutes of pretraining; a busy machine does less in them.")] = 3.0,
    seed: Annotated[int, ranged(SEED, help="Seed of all randomness.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Try the packaged English model, if installed, then pretrain a small BERT on Python's own documentation.

    A tour of a few minutes: blanks, senses and a tagger with the packaged model, then a vocabulary and a model from
    scratch, and how far both are above chance. No download.
    """
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    reporter = Reporter(Console(markup=False, emoji=False, highlight=False, quiet=is_quiet()))
    _make_room(out)
    packaged = packaged_model()
    if packaged is None:
        console.print("the packaged English model is not installed: this demo runs the part that does not need it")
    else:
        english = load(packaged)
        tour(english, console.print)
        punctuate(str(packaged), console.print, seconds=TAGGER_S * min(1.0, minutes / 3), seed=seed)
        console.print("\nand now from scratch: a vocabulary and a small BERT from Python's own documentation")
    results = _pretrain(out, size, minutes, seed=seed, reporter=reporter)
    model = load(out)
    console.print("\nfilled blanks:")
    for text in BLANKS:
        words = ", ".join(f"{fill.token} {fill.probability:.0%}" for fill in model.fill(text, top=5).marginals[0])
        console.print(f"  {text}\n    {words}")
    console.print("masked-token accuracy, next to always guessing the most frequent token:")
    for length, result in results.items():
        if result.guess_accuracy:
            line = _beside(result.scores["masked-lm"].accuracy, result.guess_accuracy)
            console.print(f"  this BERT, length {length}: {line}")
    if packaged is not None:
        console.print(f"  the packaged model, same text, its own tokens: {_beside(*held_out(english))}")
    reporter.say(
        f'\nnext: larvatus fill "The [MASK] of the list is returned." --model {out}\n'
        "      larvatus pretrain bert --size tiny --corpus YOUR_TEXTS/ --out runs/mine"
    )


def _make_room(out: Path) -> None:
    if out.exists():
        refuse_link(out)
        if not is_there(out / MARK) and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} holds something else than a demo; choose another --out")
        shutil.rmtree(out)
    with saying_what_is_full(out):
        out.mkdir(parents=True)
        (out / MARK).write_text("A run of larvatus demo: the next one with the same --out replaces all of it.\n")


def _pretrain(out: Path, size: str, minutes: float, *, seed: int, reporter: Reporter) -> dict[int, HeldOutScores]:
    """Pretrain within the minutes, vocabulary and shards included, and a quarter more."""
    recipe = read_recipe("bert", size=size)
    deadline = time.monotonic() + 60 * minutes * PATIENCE
    budget, runtime = Budget(minutes=minutes), Runtime.here()
    job = PretrainingJob(recipe=recipe, out=out, runtime=runtime, budget=budget, seed=seed, deadline=deadline)

    def texts() -> PreparedCorpus:
        return prepare(recipe, [EMBEDDED], out=out, valid=None, options=TextOptions(), reporter=reporter)

    return train(job, texts, reporter)


def _beside(accuracy: float, guess: float) -> str:
    return f"{accuracy:.1%}, {accuracy / max(guess, 1e-9):.1f} × the unigram guess ({guess:.1%})"


Say = Callable[[str], None]
Marked = tuple[list[str], list[str]]
"""Words, and the mark after each."""

ENGLISH_BLANKS = (
    "Paris is the [MASK] of France.",
    "The children were playing in the [MASK].",
    "She opened the [MASK] and looked out into the street.",
)
RIVER = ("They walked along the *bank* of the river.", "The boat was tied to the muddy *bank*.")
MONEY = ("She put the money into her account at the *bank*.", "The *bank* raised its interest rates.")
PLACES = """The fishermen sat on the shore and watched the water.
He borrowed a large sum from a lender in the city.
A narrow path led down to the edge of the lake.
The company sold its shares and paid its debts.
Trees grew on both sides of the stream.
The insurance firm lost millions during the crisis.
"""
STRETCH, FEWEST_WORDS = 40, 8
"""Words of an example."""
HELD_OUT = 100
EXAMPLE = (
    "when the file cannot be opened the function raises an error and nothing is written it is then up to the caller to "
    "decide what to do"
)
_WORD = regex.compile(r"(\p{L}[\p{L}'-]*)([,.;:?!]?)(?=\s|$)")
MARKS = {",": "COMMA", ";": "COMMA", ":": "COMMA", ".": "STOP", "?": "STOP", "!": "STOP"}
SIGNS = {"COMMA": ",", "STOP": "."}
TRAINING_COST, SHARE, FEWEST, MOST = 4.0, 0.7, 64, 4_000
"""Cost of training on a token, in tokens of inference; share of the time for training; least and most examples."""
SETTINGS: dict[str, Any] = {"epochs": 1, "evaluations": 1, "batch": 8, "rate": 3e-4}
HELD_OUT_TOKENS = 8_192


def tour(model: Model, say: Say) -> None:
    """Blanks, two senses of a word, and the words that are nearest to one in its context."""
    say("the packaged English model fills blanks:")
    for fills in model.fill(list(ENGLISH_BLANKS), top=5):
        words = ", ".join(f"{fill.token.strip()} {fill.probability:.0%}" for fill in fills.marginals[0])
        say(f"  {fills.text}\n    {words}")
    cosines = model.similarities([*RIVER, *MONEY]).matrix
    same, other = (cosines[0, 1] + cosines[2, 3]) / 2, float(np.mean(cosines[:2, 2:]))
    say("two senses of bank, by the cosine between its vectors:")
    say(f"  {same:.2f} in the same sense ({RIVER[0]} / {RIVER[1]})")
    say(f"  {other:.2f} in different senses ({RIVER[0]} / {MONEY[0]})")
    with TemporaryDirectory() as folder:
        (Path(folder) / "places.txt").write_text(PLACES)
        say("nearest words in context, among all words of six sentences:")
        for query in (RIVER[0], MONEY[1]):
            hits = model.nearest(query, folder, any_word=True, top=4).hits
            say(f"  {query}\n    {', '.join(f'{hit.row.word} {hit.cosine:.2f}' for hit in hits)}")


def examples(part: Literal["train", "valid"]) -> Iterator[Marked]:
    """Passages of Python's documentation."""
    for document in embedded_documents(part):
        yield from filter(None, map(marked, document.text.split("\n\n")))


def marked(paragraph: str) -> Marked | None:
    """The first words of a paragraph in lower case, and the mark after each; None for one with few words."""
    pairs = _WORD.findall(paragraph)[:STRETCH]
    if len(pairs) < FEWEST_WORDS:
        return None
    return [word.lower() for word, _ in pairs], [MARKS.get(mark, "O") for _, mark in pairs]


def punctuate(model: str, say: Say, *, seconds: float, seed: int) -> None:
    """Fine-tune a tagger that restores commas and full stops, on as many examples as the time allows."""
    began = time.monotonic()
    train, dev = _some(examples("train"), MOST, seed), _some(examples("valid"), HELD_OUT, seed)
    count = _affordable(load(model), train, seconds - (time.monotonic() - began))
    say(f"fine-tuning it to put commas and full stops back: {count:,} passages of Python's documentation …")
    tagger = finetune("tag", model, train=train[:count], dev=dev, seed=seed, quiet=True, **SETTINGS)
    words, *answers = cast(list[Tagged], tagger.predict([EXAMPLE.split(), *(words for words, _ in dev)]))
    gold = [tags for _, tags in dev]
    score, chance = _f1([answer.tags for answer in answers], gold), _marks(gold)
    say(f"  F1 of punctuation marks on {len(dev)} held-out passages: {score:.2f}; at random {chance:.2f}")
    say(f"  {' '.join(word.text + SIGNS.get(word.tag, '') for word in words.words)}")
    say(f"  in {time.monotonic() - began:.0f} seconds")


def held_out(model: Model) -> tuple[float, float]:
    """Masked-token accuracy of the model, and of the unigram guess, on the held-out text of the demo."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "valid.txt"
        path.write_text("\n\n".join(document.text for document in embedded_documents("valid")))
        (row,) = evaluate(model, corpus=path, tokens=HELD_OUT_TOKENS).rows()
    return row["accuracy"], row["unigram_accuracy"]


def _some(given: Iterator[Marked], most: int, seed: int) -> list[Marked]:
    """A random sample, the same for the same seed."""
    listed = list(islice(given, 100_000))
    return [listed[index] for index in np.random.default_rng(seed).permutation(len(listed))[:most]]


def _affordable(model: Model, train: Sequence[Marked], seconds: float) -> int:
    """Number of examples that fit into the time, estimated by embedding a few: a busy machine trains on fewer."""
    few = [words for words, _ in train[:32]]
    model.embed(few[:2])  # warms up
    began = time.monotonic()
    model.embed(few)
    each = TRAINING_COST * (time.monotonic() - began) / len(few)
    return max(FEWEST, min(len(train), int(SHARE * seconds / each)))


def _marks(tags: Sequence[Sequence[str]]) -> float:
    """F1 of marks that are sampled as often as they occur."""
    flat = [tag for row in tags for tag in row]
    marked = [tag for tag in flat if tag != "O"]
    return sum((marked.count(tag) / len(flat)) * (marked.count(tag) / len(marked)) for tag in SIGNS)


def _f1(guessed: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> float:
    pairs = [pair for ours, theirs in zip(guessed, gold, strict=True) for pair in zip(ours, theirs, strict=True)]
    right = sum(ours == theirs != "O" for ours, theirs in pairs)
    said, wanted = (sum(pair[side] != "O" for pair in pairs) for side in (0, 1))
    return 2 * right / max(1, said + wanted)
