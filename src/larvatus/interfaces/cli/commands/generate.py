"""`larvatus generate "Once upon a" --model DIR`: continue texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from larvatus.core.errors import DataError
from larvatus.data.bulk.row_files import row_file
from larvatus.data.text.readers import read_single_texts
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import Encoding, Json, Machine, NamedModel, TextFileOptions
from larvatus.models.generation.generate import generate as generate_texts
from larvatus.models.generation.results import Continuation
from larvatus.models.generation.settings import GenerateSettings

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
