"""Files that are not what their name says: nested without end, damaged, of another program, of odd columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.files import sha256
from tests.faults.cases import Case, Place
from tests.faults.cases.made import index, own, senses, standardiser, vectors, wordnet

DEEP = "[" * 100_000


def recipe(text: str, *more: object) -> Callable[[Place], list[object]]:
    return lambda place: ["recipes", "show", place.write("mine.toml", text), *more]


def setting(text: str) -> Callable[[Place], list[object]]:
    return lambda place: ["recipes", "show", "bert", "--set", text]


def checked(name: str, contents: str | bytes, *more: object) -> Callable[[Place], list[object]]:
    return lambda place: ["data", "check", place.write(name, contents), *more]


def parquet(table: pa.Table, *more: object) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        pq.write_table(table, place.here / "train.parquet")
        return ["data", "check", place.here / "train.parquet", "--for", "classify", *more]

    return command


def corpus(table: pa.Table) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        pq.write_table(table, place.here / "text.parquet")
        return ["tokenizer", "train", place.here / "text.parquet", "--size", 60, "--out", "v"]

    return command


def searched(path: Path, place: Place) -> list[object]:
    return ["similar", "the *bank* of", "--in", path, "--model", place.model]


def forged(file: str, change: Callable[[Path], None]) -> Callable[[Place], list[object]]:
    """An index whose checksums fit, but one of whose files is not as Larvatus writes it."""

    def command(place: Place) -> list[object]:
        path = own(place, index(place))
        change(path / file)
        described = json.loads((path / "index.json").read_text())
        described["files"][file] = sha256(path / file)
        (path / "index.json").write_text(json.dumps(described))
        return searched(path, place)

    return command


def arrow(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def vector_file(change: Callable[[pa.Table], pa.Table]) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, vectors(place, ".parquet"))
        pq.write_table(change(pq.read_table(path)), path)
        return searched(path, place)

    return command


def cut(suffix: str) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, vectors(place, suffix))
        path.write_bytes(path.read_bytes()[:-40])
        return searched(path, place)

    return command


def spoilt(make: Callable[[Place], Path], contents: bytes) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, make(place))
        path.write_bytes(contents)
        return ["embed", place.text, "--model", place.model, "--out", "v.npy", "--standardise", path]

    return command


def sensed(file: str, contents: bytes) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, senses(place))
        (path / file).write_bytes(contents)
        return ["senses", "show", "bank", "--wordnet", wordnet(place), "--senses", path]

    return command


def config(key: str, value: object) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, place.model)
        (path / "larvatus.json").unlink()
        known = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**known, key: value}))
        return ["fill", "a [MASK]", "--model", path]

    return command


TWO = {"text": ["a b", "c d"], "label": ["x", "y"]}
NESTED = {b"huggingface": DEEP.encode()}
RECIPES = [
    Case("a recipe nested without end", recipe(f"a = {DEEP}"), 3, ("mine.toml", "TOML")),
    Case("a recipe of inline tables without end", recipe("a = " + "{b=" * 100_000), 3, ("TOML",)),
    Case("a recipe with a number of 5,000 digits", recipe('base = "bert"\nbatch = ' + "9" * 5_000), 3, ("TOML",)),
    Case("a recipe whose base has a NUL", recipe('base = "a\\u0000.toml"'), 3, ("cannot be read",)),
    Case("a recipe whose model is a number", recipe('base = "bert"\nmodel = 1\n', "--size", "tiny"), 3, ("[model]",)),
    Case(
        "a recipe whose model is a date", recipe('base = "bert"\nmodel = 1979-05-27\n', "--size", "tiny"), 3, ("model",)
    ),
    Case("a recipe whose model is a list", recipe('base = "bert"\nmodel = []\n'), 3, ("model",)),
    Case("a recipe whose objectives are numbers", recipe('base = "bert"\nobjectives = [1]\n', "--size", "tiny"), 3),
    Case("a recipe whose phases are words", recipe('base = "bert"\nphases = ["x"]\n', "--size", "tiny"), 3),
    Case("a recipe whose sizes are a number", recipe('base = "bert"\nsizes = 5\n'), 3, ("sizes",)),
    Case("a recipe whose size is a number", recipe('base = "bert"\nsizes = {tiny = 5}\n'), 3, ("sizes",)),
    Case("a recipe that is no text", recipe("\x00\x01"), 3, ("TOML",)),
    Case("a recipe with a table twice", recipe("[model]\nlayers = 1\n[model]\n"), 3, ("TOML",)),
    Case("a setting nested without end", setting(f"batch={DEEP}"), 3, ("--set batch",)),
    Case("a setting of 5,000 digits", setting("batch=" + "9" * 5_000), 3, ("--set batch",)),
    Case("a setting without a value", setting("batch"), 3, ("field=value",)),
    Case("a setting without a name", setting("=1"), 3, ("field=value",)),
    Case("a setting of thousands of tables", setting(".".join("a" * 3_000) + "=1"), 3),
    Case("a setting that is not UTF-8", setting("model.\udcff=1"), 3),
    Case("an element that is not there", setting("phases.9.length=1"), 3, ("no element 9",)),
    Case("a field of a number", setting("batch.x=1"), 3, ("batch",)),
]
LABELLED = [
    Case("JSONL nested without end", checked("a.jsonl", f'{{"text": {DEEP}\n'), 4, ("a.jsonl",)),
    Case("objects nested without end", checked("a.jsonl", '{"a":' * 100_000), 4, ("a.jsonl",)),
    Case("SQuAD nested without end", checked("a.json", f'{{"data": {DEEP}', "--for", "answer"), 4, ("a.json",)),
    Case("two columns of one name in CSV", checked("a.csv", "text,text,label\na,b,c\n"), 4, ("'text'",)),
    Case("a quote that is not closed", checked("a.csv", 'text,label\n"a,b\nc,d\n', "--for", "classify"), 4, ("a.csv",)),
    Case("100,000 columns", checked("a.csv", "x," * 100_000 + "\n" + "y," * 100_000 + "\n"), 4, ("columns",)),
    Case("an empty table", checked("a.csv", ""), 4, ("empty",)),
    Case("a table of line breaks", checked("a.tsv", "\n" * 9, "--for", "classify"), 4, ("empty",)),
    Case("a column by a superscript", checked("a.jsonl", '{"text": "a", "label": "b"}\n', "--text", "²"), 4, ("²",)),
    Case("a column of 5,000 digits", checked("a.jsonl", '{"text": "a", "label": "b"}\n', "--text", "9" * 5_000), 4),
    Case(
        "brat with superscripts",
        lambda place: [
            "data",
            "check",
            place.write("a.txt", "Jane").parent,
            place.write("a.ann", "T1\tPER ⁰ ⁴\tJane\n").parent,
        ],
        4,
    ),
    Case("Parquet metadata nested without end", parquet(pa.table(TWO).replace_schema_metadata(NESTED)), 0),
    Case(
        "two columns of one name in Parquet",
        parquet(pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "text", "label"])),
        4,
        ("'text'",),
    ),
    Case(
        "two columns of one name in a corpus",
        corpus(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])),
        4,
        ("'text'",),
    ),
    Case(
        "a record with one field twice",
        parquet(
            pa.table(
                {
                    **TWO,
                    "meta": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([1, 2])], names=["a", "a"]),
                }
            )
        ),
        0,
    ),
    Case("Parquet without rows", parquet(pa.table(TWO).slice(0, 0)), 4, ("no rows",)),
    Case("Parquet without columns", parquet(pa.table({})), 4),
    Case("Parquet of nulls", parquet(pa.table({"text": pa.nulls(2), "label": pa.nulls(2)})), 4),
    Case("Parquet that is none", checked("a.parquet", "PAR1 and so on PAR1"), 4, ("a.parquet",)),
    Case("Parquet that is encrypted", checked("a.parquet", b"PARE" + b"x" * 50 + b"\x10\0\0\0PARE"), 4, ("a.parquet",)),
    Case("zstd that is none", checked("a.jsonl.zst", "hello"), 4, ("a.jsonl.zst",)),
    Case("an encoding of names of hosts", checked("a.csv", "text,label\na,b\n", "--encoding", "idna"), 2, ("idna",)),
    Case("an encoding of source code", checked("a.csv", "x", "--encoding", "unicode_escape"), 2, ("unicode_escape",)),
    Case("an encoding of nothing", checked("a.csv", "x", "--encoding", "undefined"), 2, ("undefined",)),
    Case("an encoding that is not UTF-8", checked("a.csv", "x", "--encoding", "\udcff"), 2),
    Case("an encoding of bytes", checked("a.csv", "x", "--encoding", "base64"), 2, ("base64",)),
    Case(
        "WiC nested without end",
        lambda place: [
            "similar",
            "evaluate",
            "wic",
            place.write("w.jsonl", f"{DEEP}\n"),
            "--model",
            place.model,
        ],
        4,
        ("w.jsonl:1",),
    ),
    Case(
        "SemCor as zstd that is none",
        lambda place: [
            "senses",
            "build",
            place.write("semcor.zst", "hello"),
            "--wordnet",
            wordnet(place),
            "--model",
            place.model,
            "--out",
            "o",
        ],
        4,
        ("semcor.zst",),
    ),
    Case(
        "a test set as zstd that is none",
        lambda place: [
            "senses",
            "evaluate",
            place.write("a.data.xml.zst", "hello"),
            "--keys",
            place.write("k", "a b%1\n"),
            "--gold",
            place.write("g.zst", "hello"),
        ],
        4,
        ("g.zst",),
    ),
]
ARTEFACTS = [
    Case(
        "an index of other columns",
        forged("words.arrow", lambda p: arrow(p, pa.table({"a": [1]}))),
        5,
        ("words.arrow",),
    ),
    Case(
        "an index with a text for a table", forged("rows.arrow", lambda p: p.write_bytes(b"hello")), 5, ("rows.arrow",)
    ),
    Case(
        "an index with a text for vectors",
        forged("vectors.npy", lambda p: p.write_bytes(b"hello")),
        5,
        ("vectors.npy",),
    ),
    Case(
        "an index of too few vectors",
        forged("vectors.npy", lambda p: np.save(p, np.zeros((1, 16), np.float16))),
        5,
        ("vectors.npy",),
    ),
    Case(
        "an index of vectors of another size",
        forged("vectors.npy", lambda p: np.save(p, np.zeros((40, 3), np.float16))),
        5,
        ("vectors.npy",),
    ),
    Case(
        "an index whose rows are elsewhere",
        forged("rows.npy", lambda p: np.save(p, np.load(p) + 10**6)),
        5,
        ("rows.npy",),
    ),
    Case(
        "an index whose words are elsewhere",
        forged("words.arrow", lambda p: arrow(p, pa.table({"word": ["bank"], "first": [10**9], "count": [5]}))),
        5,
        ("words.arrow",),
    ),
    Case("vectors that are cut", cut(".parquet"), 5, ("vectors.parquet",)),
    Case("Arrow vectors that are cut", cut(".arrow"), 5, ("vectors.arrow",)),
    Case(
        "vectors that do not say what they are",
        vector_file(lambda t: t.replace_schema_metadata({"larvatus": "hello"})),
        5,
        ("larvatus embed",),
    ),
    Case(
        "vectors that say it in a list",
        vector_file(lambda t: t.replace_schema_metadata({"larvatus": "[]"})),
        5,
        ("larvatus embed",),
    ),
    Case(
        "vectors that say it nested without end",
        vector_file(lambda t: t.replace_schema_metadata({"larvatus": DEEP})),
        5,
        ("larvatus embed",),
    ),
    Case(
        "vectors without a model",
        vector_file(lambda t: t.replace_schema_metadata({"larvatus": '{"unit": "word"}'})),
        5,
        ("model",),
    ),
    Case("vectors without texts", vector_file(lambda t: t.drop_columns(["text"])), 5, ("columns",)),
    Case(
        "vectors that are numbers",
        vector_file(lambda t: t.set_column(t.schema.get_field_index("vector"), "vector", pa.array(range(len(t))))),
        5,
        ("columns",),
    ),
    Case("a standardiser that is a text", spoilt(standardiser, b"hello"), 5, ("z.safetensors",)),
    Case("a standardiser that is empty", spoilt(standardiser, b""), 5, ("z.safetensors",)),
    Case("sense vectors that are a text", sensed("senses.safetensors", b"hello"), 5, ("senses.safetensors",)),
    Case("settings of senses that are a list", sensed("senses.json", b"[]"), 5, ("senses.json",)),
    Case("a manifest of senses nested without end", sensed("larvatus.json", DEEP.encode()), 5, ("larvatus.json",)),
    Case("a config whose type is a list", config("model_type", []), 5, ("config.json",)),
    Case("a config whose size is a list", config("hidden_size", [1]), 5),
    Case("a config whose architectures are a number", config("architectures", 5), 5),
    Case("a config whose activation is a record", config("hidden_act", {}), 5),
]
CASES = [*RECIPES, *LABELLED, *ARTEFACTS]
