"""`larvatus tokenizer train` and `larvatus tokenizer show`: learn a vocabulary from text, and look at what it does.

    larvatus tokenizer train my_texts/ --type wordpiece --size 30522 --out vocabulary/
    larvatus tokenizer train --language sw=swahili/ --language en=english/ --alpha 0.3 --type unigram --out v/
    larvatus tokenizer show vocabulary/ "Mt. Sanitas is in Sunshine Canyon."

The same text and settings give the same vocabulary every time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.core.errors import printable
from larvatus.core.tables import Table
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.interfaces.api.corpora import Read, run_tokenizer_training
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import READING, Bulk, CorpusPaths, Json
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, hint, show_part
from larvatus.interfaces.settings import TextSettings, VocabularySettings
from larvatus.models.bundle.model_names import model_path

app = typer.Typer(help="Train a vocabulary on text, or show how it splits a text.", no_args_is_help=True)


@app.command()
@from_structs
def train(
    named: CorpusPaths,
    out: Annotated[Path, typer.Option(help="New directory for the vocabulary.")],
    chosen: Annotated[VocabularySettings, Panel()],
    reading: Annotated[TextSettings, Panel(READING, without=("language", "sentences", "licence"))],
    bulk: Bulk,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a vocabulary: the same one for the same text, every time."""
    given, how = named.read_with(reading)
    read = Read()
    with ProgressReporter("documents", start="learning the vocabulary"):
        tokenizer = run_tokenizer_training(given, chosen, how, bulk, out=out, read=read)
    counts = {"documents": read.documents, "characters": read.characters}
    left = {"skipped": read.skipped.total, "left_out": len(read.skipped.left)}
    _report(tokenizer, out, counts | left, str(read.skipped), as_json=as_json)


def _report(tokenizer: Tokenizer, out: Path, read: dict[str, int], skipped: str, *, as_json: bool) -> None:
    assert tokenizer.counts is not None
    tokens = int(tokenizer.counts.sum())
    unknown = int(tokenizer.counts[tokenizer.unk_id])
    if as_json:
        learnt = {"out": str(out), "type": tokenizer.kind, "size": tokenizer.size, "tokens": tokens, "unknown": unknown}
        print(json.dumps(read | learnt, ensure_ascii=False))
        return
    share = f"{100 * unknown / max(1, tokens):.2f}% unknown"
    print(f"{read['documents']:,} documents · {read['characters']:,} characters · {skipped}")
    print(f"{tokenizer.kind}: vocabulary of {tokenizer.size:,} tokens · {tokens:,} tokens of text · {share}")
    print(f"saved {printable(str(out))}")
    hint(f'next: larvatus tokenizer show {printable(str(out))} "Some text of yours."')


@app.command()
def show(
    directory: Annotated[str, typer.Argument(help="A directory with a tokenizer.json, that file, or english.")],
    text: Annotated[str | None, typer.Argument(help="A text to tokenize.")] = None,
    as_json: Json = False,
) -> None:
    """Show a vocabulary, or the tokens of a text with their words and characters."""
    tokenizer = Tokenizer.load(Path(model_path(directory)))
    if text is None:
        _show_vocabulary(tokenizer, as_json=as_json)
        return
    encoded = tokenizer.encode(text)
    rows = [
        {
            "token": index,
            "id": int(encoded.ids[index]),
            "piece": tokenizer.token(int(encoded.ids[index])),
            "word": word if word >= 0 else None,
            "word_text": encoded.word_text(word) if word >= 0 else None,
            "start": start,
            "end": end,
            "text": text[start:end],
        }
        for index, (word, (start, end)) in enumerate(zip(encoded.words.tolist(), encoded.spans.tolist(), strict=True))
    ]
    if as_json:
        print(json.dumps({"text": text, "words": len(encoded.word_spans), "tokens": rows}, ensure_ascii=False))
        return
    cells = [
        (
            str(row["token"]),
            str(row["id"]),
            visible(tokenizer.readable(row["piece"])),
            "" if row["word"] is None else str(row["word"]),
            visible(row["word_text"] or ""),
            f"{row['start']}–{row['end']}",
            visible(row["text"]),
        )
        for row in rows
    ]
    heads = ("token", "id", "piece", "word", "", "characters", "")
    show_part(Console(), Table(heads, cells, left=len(heads)))


def _show_vocabulary(tokenizer: Tokenizer, *, as_json: bool) -> None:
    special = {role: name for role, name in vars(tokenizer.special).items() if name}
    summary = {"type": tokenizer.kind, "size": tokenizer.size, "lowercase": tokenizer.lowercase, "special": special}
    commonest: list[str] = []
    if tokenizer.counts is not None:
        order = (-tokenizer.counts).argsort(kind="stable")[:20]
        commonest = [tokenizer.token(int(index)) for index in order]
    if as_json:
        print(json.dumps(summary | {"commonest": commonest}, ensure_ascii=False))
        return
    print(f"{tokenizer.kind}: {tokenizer.size:,} tokens, {'lower-cased' if tokenizer.lowercase else 'cased'}")
    print("special: " + "  ".join(f"{role} {name} = {tokenizer.id(name)}" for role, name in special.items()))
    if commonest:
        print("commonest: " + " ".join(map(tokenizer.readable, commonest)))


def visible(text: str) -> str:
    """Text with every unprintable character as its escape."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
