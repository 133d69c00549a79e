"""`larvatus tokenizer train` and `larvatus tokenizer show`: learn a vocabulary from text, and look at what it does.

larvatus tokenizer train my_texts/ --type wordpiece --size 30522 --out vocabulary/
larvatus tokenizer train --language sw=swahili/ --language en=english/ --alpha 0.3 --type unigram --size 32000 --out v/
larvatus tokenizer show vocabulary/ "Mt. Sanitas is in Sunshine Canyon."
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from larvatus.cli.numbers import ranged
from larvatus.cli.options import (
    Alpha,
    Encoding,
    Json,
    LanguageField,
    Languages,
    OnBad,
    Overwrite,
    Split,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.corpus.mixture import MixtureConfig
from larvatus.errors import printable
from larvatus.files import saying_what_is_full
from larvatus.outputs import check_directory
from larvatus.ranges import SIZE
from larvatus.text.languages import path_of, read_languages, train_mixed_vocabulary
from larvatus.text.readers import Document, ReadOptions, Skipped
from larvatus.text.tokenizer import Tokenizer
from larvatus.text.tokenizer_files import WRITTEN
from larvatus.text.vocabulary import (
    BPEConfig,
    ByteBPEConfig,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)

app = typer.Typer(help="Learn a vocabulary from text, and look at what it does.", no_args_is_help=True)


Kind = Literal["wordpiece", "byte-bpe", "bpe", "unigram"]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="New directory for the vocabulary.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, directories, globs, URLs, or - for standard input.")
    ] = None,
    kind: Annotated[Kind, typer.Option("--type", help="What kind of pieces.")] = "wordpiece",
    size: Annotated[int, ranged(SIZE, help="Pieces in all, special tokens included.")] = 30_522,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase/--cased", help="Fold case and accents; default: as the family does.")
    ] = None,
    overwrite: Overwrite = False,
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    split: Split = "blank-line",
    text_field: TextField = "text",
    languages: Languages = None,
    language_field: LanguageField = None,
    alpha: Alpha = 1.0,
    as_json: Json = False,
) -> None:
    """Learn a vocabulary: the same one for the same text, every time."""
    given, language = text_of(paths, languages, option="PATHS")
    mixture = MixtureConfig(alpha=alpha)
    check_directory(out, WRITTEN, overwrite=overwrite, inputs=map(path_of, given))
    with saying_what_is_full(out):
        out.mkdir(parents=True, exist_ok=True)  # an --out that cannot be written is refused before any text is read
    options = ReadOptions(
        encoding=encoding_of(encoding), split=split, text_field=text_field, language_field=language_field, on_bad=on_bad
    )
    skipped, read = Skipped(), {"documents": 0, "characters": 0}

    def documents() -> Iterator[Document]:
        for document in read_languages(given, options=options, skipped=skipped):
            read["documents"] += 1
            read["characters"] += len(document.text)
            yield document

    console = Console(stderr=as_json, markup=False, emoji=False)
    with console.status("learning the vocabulary …"):
        tokenizer = train_mixed_vocabulary(
            documents(),
            _config(kind, size, lowercase),
            mixture.repeats if mixture.alpha < 1 else None,
            language=language,
        )
    tokenizer.save(out)
    _report(
        tokenizer, out, read | {"skipped": skipped.total, "left_out": len(skipped.left)}, str(skipped), as_json=as_json
    )


def _config(kind: Kind, size: int, lowercase: bool | None) -> TokenizerConfig:
    case: dict[str, Any] = {} if lowercase is None else {"lowercase": lowercase}
    if kind == "byte-bpe":
        if lowercase:
            raise typer.BadParameter("byte-level BPE keeps text as it is; leave out --lowercase")
        return ByteBPEConfig(size=size)
    if kind == "wordpiece":
        return WordPieceConfig(size=size, **case)
    return BPEConfig(size=size, **case) if kind == "bpe" else UnigramConfig(size=size, **case)


def _report(tokenizer: Tokenizer, out: Path, read: dict[str, int], skipped: str, *, as_json: bool) -> None:
    assert tokenizer.counts is not None
    tokens = int(tokenizer.counts.sum())
    unknown = int(tokenizer.counts[tokenizer.unk_id])
    if as_json:
        found = {"out": str(out), "type": tokenizer.kind, "size": tokenizer.size, "tokens": tokens, "unknown": unknown}
        print(json.dumps(read | found, ensure_ascii=False))
        return
    share = f"{100 * unknown / max(1, tokens):.2f}% unknown"
    print(f"{read['documents']:,} documents · {read['characters']:,} characters · {skipped}")
    print(f"{tokenizer.kind}: {tokenizer.size:,} pieces · {tokens:,} tokens of text · {share}")
    print(f'saved {(name := printable(str(out)))}\nnext: larvatus tokenizer show {name} "Some text of yours."')


@app.command()
def show(
    directory: Annotated[Path, typer.Argument(help="A directory with a tokenizer.json, or that file.")],
    text: Annotated[str | None, typer.Argument(help="A text to cut into pieces.")] = None,
    as_json: Json = False,
) -> None:
    """Show a vocabulary, or how it cuts a text: pieces, words, characters."""
    tokenizer = Tokenizer.load(directory)
    if text is None:
        _show_vocabulary(tokenizer, as_json=as_json)
        return
    found = tokenizer.encode(text)
    rows = [
        {
            "token": index,
            "id": int(found.ids[index]),
            "piece": tokenizer.token(int(found.ids[index])),
            "word": word if word >= 0 else None,
            "word_text": found.word_text(word) if word >= 0 else None,
            "start": start,
            "end": end,
            "text": text[start:end],
        }
        for index, (word, (start, end)) in enumerate(zip(found.words.tolist(), found.spans.tolist(), strict=True))
    ]
    if as_json:
        print(json.dumps({"text": text, "words": len(found.word_spans), "tokens": rows}, ensure_ascii=False))
        return
    table = Table("token", "id", "piece", "word", "", "characters", "", box=None, pad_edge=False)
    for row in rows:
        word = "" if row["word"] is None else str(row["word"])
        table.add_row(
            str(row["token"]), str(row["id"]), _escaped(row["piece"]), word, _escaped(row["word_text"] or ""),
            f"{row['start']}–{row['end']}", _escaped(row["text"]),
        )  # fmt: skip
    Console().print(table)


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
    print(f"{tokenizer.kind}: {tokenizer.size:,} pieces, {'lower-cased' if tokenizer.lowercase else 'cased'}")
    print("special: " + "  ".join(f"{role} {name} = {tokenizer.id(name)}" for role, name in special.items()))
    if commonest:
        print("commonest: " + " ".join(commonest))


def _escaped(text: str) -> str:
    """Visible, and no markup: a piece such as [bold] is text."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return shown.replace("[", r"\[")
