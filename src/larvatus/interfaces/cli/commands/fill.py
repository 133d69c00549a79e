"""`larvatus fill` and `larvatus generate`: the words a model puts into blanks, and texts that it continues.

    larvatus fill "The [MASK] of the river was wide." --model runs/mine
    larvatus generate "Once upon a" --model runs/gpt

Both read texts from arguments, files or standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from larvatus.core.errors import DataError
from larvatus.core.tables import Cell, Column, Table
from larvatus.data.bulk.row_files import row_file
from larvatus.data.text.readers import expand_patterns, read_single_texts
from larvatus.inference.cloze.fill import mark_of
from larvatus.inference.cloze.results import Fill, Fills, JointFill
from larvatus.interfaces.cli.from_struct import BEAM, TOP, Panel, from_structs, ranged
from larvatus.interfaces.cli.options import Encoding, Json, Machine, ModelName, NamedModel, TextFileOptions
from larvatus.interfaces.cli.output import show_part
from larvatus.models.generation.generate import Continuation, GenerateSettings
from larvatus.models.generation.generate import generate as generate_texts

AROUND = 60  # characters before and after a blank


@from_structs
def fill(
    model: ModelName,
    machine: Machine,
    chosen: Annotated[TextFileOptions, Panel()],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts with [MASK] at each blank; - reads lines from standard input."),
    ] = None,
    top: Annotated[int, ranged(TOP, "--top", help="Number of candidates.")] = 5,
    joint: Annotated[
        bool, typer.Option("--joint/--marginals", help="Fill several blanks jointly, or each by itself.")
    ] = True,
    beam: Annotated[int, ranged(BEAM, "--beam", help="Beam size when several blanks are filled jointly.")] = 10,
    words_only: Annotated[
        bool,
        typer.Option(
            "--words-only/--subwords", help="Whole words only, or all tokens; probabilities are not renormalised."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
) -> None:
    """Fill the blanks of texts with the most probable words."""
    nothing = "nothing to fill; give texts with [MASK] at each blank, - for standard input, or --file"
    chosen.check(texts or [], model, nothing=nothing)
    loaded = machine.load(model)
    lines = chain.from_iterable(_lines() if text == "-" else [text] for text in texts or ())
    rows = (text for name in expand_patterns(chosen.file) for _, text in read_single_texts(name, chosen.text))
    with row_file(chosen.out) if chosen.out is not None else nullcontext() as write:
        for line in chain(lines, rows):
            fills = loaded.fill(line, top=top, beam=beam, joint=joint, words_only=words_only)
            if write is not None:
                write(fills.to_dict(), fills.to_dicts())
            elif as_json:
                print(json.dumps(fills.to_dict(), ensure_ascii=False))
            else:
                _show(fills, mark_of(line, loaded.tokenizer), Console(soft_wrap=True, highlight=False))


def _lines() -> Iterator[str]:
    """Lines of standard input that are not blank."""
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as fault:
            raise DataError(f"standard input, line {number}: not UTF-8") from fault
        if line:
            yield line


def _show(fills: Fills, mask: str, console: Console) -> None:
    if fills.partial:
        console.print(Text(f"note: {fills.partial}"))
    blank = max(0, fills.text.find(mask))
    if fills.best:
        show_part(console, _table(fills.best, blank))
        return
    for number, candidates in enumerate(fills.marginals, start=1):
        console.print(Text(f"blank {number} of {len(fills.marginals)}"))
        show_part(console, _table(candidates, blank))


def _table(fills: Sequence[Fill | JointFill], blank: int) -> Table:
    """Candidates with their texts; of a long text only the part around `blank`, the place of the first blank."""
    rows = []
    for fill in fills:
        token = fill.token if isinstance(fill, Fill) else " … ".join(fill.tokens)
        rows.append((_percent(fill.probability), Cell(token, "bold"), Cell(_excerpt(fill.text, blank), "dim")))
    return Table((Column(""), Column("", right=False), Column("", right=False)), rows)


def _excerpt(text: str, place: int) -> str:
    start, end = max(0, place - AROUND), place + AROUND
    return ("… " if start else "") + text[start:end].strip() + (" …" if end < len(text) else "")


def _percent(probability: float) -> str:
    return f"{probability:.1%}" if probability >= 0.001 else f"{probability:.1e}"


# `larvatus generate`.

LINES_AT_ONCE = 256


@from_structs
def generate(
    model: NamedModel,
    machine: Machine,
    files: Annotated[TextFileOptions, Panel()],
    chosen: Annotated[GenerateSettings, Panel()],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT...", help="Texts to continue; - reads lines from standard input."),
    ] = None,
    encoding: Encoding = None,  # holds while the command runs
    as_json: Json = False,
) -> None:
    """Continue texts token by token: greedy, sampled, or by beam search (gpt, t5)."""
    files.check(prompts or [], model, nothing="nothing to continue; give prompts, - for standard input, or --file")
    loaded = machine.load(model)
    count, name = 0, str(loaded.bundle.path)
    console = Console(soft_wrap=True, highlight=False)
    with row_file(files.out) if files.out is not None else nullcontext() as write:
        for labels, texts in _blocks(prompts or [], files):
            results = generate_texts(
                loaded.network, loaded.tokenizer, texts, chosen, labels=labels, first=count, name=name
            )
            for generated in results:
                if write is not None:
                    write(generated.to_dict(), generated.to_dicts())
                elif as_json:
                    print(json.dumps(generated.to_dict(), ensure_ascii=False))
                else:
                    for continuation in generated:
                        console.print(_line(continuation))
            count += len(texts)


def _blocks(prompts: Sequence[str], files: TextFileOptions) -> Iterator[tuple[list[str], list[str]]]:
    """Prompts as given, then lines or rows that are not blank, some at a time, each with what messages call it."""
    given = [text for text in prompts if text != "-"]
    if given:
        several = len(given) > 1
        yield [f"prompt {number}" if several else "the prompt" for number in range(1, len(given) + 1)], given
    for name in [*(text for text in prompts if text == "-"), *files.file]:
        shown = "standard input" if name == "-" else name
        lines = read_single_texts(name, None if name == "-" else files.text)
        block = list(islice(lines, LINES_AT_ONCE))
        if not block:
            raise DataError(f"{shown} has no prompt; give one a line")
        while block:
            yield [label for label, _ in block], [line for _, line in block]
            block = list(islice(lines, LINES_AT_ONCE))


def _line(continuation: Continuation) -> Text:
    """The text, what was added in bold, and a remark where it was cut short by the model's context."""
    before = continuation.whole.removesuffix(continuation.text)
    added = continuation.whole[len(before) :]
    remark = "  (the model's context is full)" if continuation.ended == "context" else ""
    return Text.assemble(before, (added, "bold"), (remark, "dim"))
