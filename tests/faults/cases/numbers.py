"""Numbers in options, settings, configs and data: not finite, out of range, absurd."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

from tests.faults.cases import Case, Place

DIGITS = "9" * 5_000
"""Python itself refuses to read so many."""


def setting(words: str, *says: str) -> Case:
    """Of a recipe, by --set; the corpus is not there, so nothing of it may be wanted first."""
    return Case(
        f"--set {words[:18] if len(words) > 60 else words}",
        lambda place: ["pretrain", "bert", "--corpus", "absent.txt", "--out", "run", "--set", words],
        3,
        (words.partition("=")[0].rpartition(".")[2], *says),
    )


def in_file(lines: str, *says: str) -> Case:
    def command(place: Place) -> list[object]:
        recipe = place.write("mine.toml", f'base = "bert"\n{lines}\n')
        return ["pretrain", recipe, "--corpus", "absent.txt", "--out", "run"]

    return Case(f"mine.toml: {lines[:60]!r}", command, 3, ("mine.toml", *says))


def option(words: str, *before: object, says: tuple[str, ...] = (), code: int = 2) -> Case:
    """An option with its value, after a command that could do without it."""
    flag, _, value = words.partition(" ")
    shown = value if len(value) < 30 else f"{value[:10]}… ({len(value)})"

    def command(place: Place) -> list[object]:
        made = [one(place) if callable(one) else one for one in before]
        return [*made, f"{flag}={value}"]

    return Case(f"{before[0]} {flag} {shown!r}", command, code, says or (flag.lstrip("-"),))


def config(change: str, value: str, *says: str) -> Case:
    """A model whose config.json says something else; `value` is JSON, or what Python takes for it."""

    def command(place: Place) -> list[object]:
        shutil.copytree(place.model, "model")
        settings = json.loads((place.here / "model/config.json").read_text())
        settings[change] = "HERE"
        place.write("model/config.json", json.dumps(settings).replace('"HERE"', value))
        (place.here / "model/larvatus.json").unlink()  # as a stranger's directory, without checksums of ours
        return ["fill", "a [MASK]", "--model", "model"]

    return Case(f"config.json: {change} = {value[:30]}", command, 5, ("config.json", *says))


def of_model(place: Place) -> object:
    return place.model


def classes(place: Place) -> object:
    return place.write("train.tsv", "text\tlabel\n" + "good words\tyes\nbad words\tno\n" * 20)


PRETRAIN = ("pretrain", "bert", "--corpus", "absent.txt", "--out", "run")
FINETUNE = ("finetune", "classify", "--model", of_model, "--train", classes, "--out", "run", "--device", "cpu")
FILL = ("fill", "a [MASK]", "--device", "cpu", "--model", of_model)

SETTINGS = [
    setting("optimizer.rate=fast"),
    setting("optimizer.rate=nan", "nan must be above 0"),
    setting("optimizer.rate=inf"),
    setting("optimizer.rate=0"),
    setting("optimizer.rate=1e999"),
    setting("optimizer.clip=-1", "optimizer.clip = -1.0 must lie between 0 and"),
    setting("optimizer.clip=nan"),
    setting("optimizer.decay=-0.01"),
    setting("optimizer.epsilon=0", "above 0"),
    setting("optimizer.beta2=1"),
    setting("corruption.rate=0", "above 0"),
    setting("corruption.rate=-0.15"),
    setting("corruption.mask=nan"),
    setting("model.hidden=1000000000"),
    setting("model.layers=1000000"),
    setting("model.max_positions=1000000000"),
    setting("model.layers=2.5"),
    setting("model.layers=true"),
    setting(f"model.layers={DIGITS}", "too long for a number"),
    setting("model.layers=0x" + "f" * 6_000),
    setting("model.norm_epsilon=-1e-12"),
    setting("model.init=nan"),
    setting("model.dropout=1"),
    setting("model.rotary_base=inf"),
    setting("tokenizer.size=0"),
    setting("tokenizer.size=1000000000000"),
    setting("tokenizer.coverage=1.5"),
    setting("tokenizer.min_count=-3"),
    setting("packing.short=-1"),
    setting("phases.0.length=7"),
    setting("phases.0.share=-0.5"),
    setting("schedule.steps=-1"),
    setting("schedule.warmup=nan"),
    setting("mixture.alpha=2"),
    setting("batch=0"),
    setting("batch=-1"),
    setting("objectives.masked-lm.weight=inf"),
    setting("objectives.masked-lm.weight=-1"),
]

FILES = [
    in_file("[optimizer]\nrate = nan", "optimizer.rate"),
    in_file(f"batch = {DIGITS}", "not valid TOML"),
    in_file("[model]\ndropout = -0.1", "model.dropout"),
    in_file("[model]\nhidden = 10000000000000000000000000000000", "model.hidden"),
]

OPTIONS = [
    option("--steps 0", *PRETRAIN),
    option("--steps -1", *PRETRAIN),
    option("--steps 10000000000000000000000", *PRETRAIN),
    option(f"--steps {DIGITS}", *PRETRAIN),
    option("--steps 1e3", *PRETRAIN),
    option("--minutes nan", *PRETRAIN),
    option("--minutes inf", *PRETRAIN),
    option("--minutes -0", *PRETRAIN),
    option("--epochs nan", *PRETRAIN),
    option("--epochs 1e999", *PRETRAIN),
    option("--seed -1", *PRETRAIN),
    option(f"--seed {DIGITS}", *PRETRAIN),
    option("--microbatch 0", *PRETRAIN),
    option("--save-every 0", *PRETRAIN),
    option("--evaluate-every -5", *PRETRAIN),
    option("--workers -1", *PRETRAIN),
    option("--rate nan", *FINETUNE),
    option("--rate -1", *FINETUNE),
    option("--warmup 1", *FINETUNE),
    option("--decay inf", *FINETUNE),
    option("--batch 0", *FINETUNE),
    option("--epochs 99999999999", *FINETUNE),
    option("--dropout -0.5", *FINETUNE),
    option("--layer-decay 0", *FINETUNE),
    option("--head-rate nan", *FINETUNE),
    option("--focal nan", *FINETUNE),
    option("--lstm -8", *FINETUNE),
    option("--seeds 0", *FINETUNE),
    option("--set rank=9", *FINETUNE, says=("classify",)),
    option("--trained last-3", *FINETUNE, says=("last",)),
    option(f"--trained last{DIGITS}", *FINETUNE, says=("last",)),
    option("--top 0", *FILL),
    option("--top 1000000000", *FILL),
    option("--top 100000", *FILL),
    option("--beam -1", *FILL),
    option("--minutes nan", "demo", "--out", "run"),
    option("--size 0", "tokenizer", "train", lambda place: place.text, "--out", "words"),
    option("--size 100000000000", "tokenizer", "train", lambda place: place.text, "--out", "words"),
    option("--alpha nan", "tokenizer", "train", lambda place: place.text, "--out", "words"),
    option("--seeds 1,x", "compare", "bert,roberta", "--corpus", "absent.txt", "--out", "run", "--steps", "1"),
    option(f"--seeds {DIGITS}", "compare", "bert,roberta", "--corpus", "absent.txt", "--out", "run", "--steps", "1"),
    option("--overlap -1", "embed", lambda place: place.text, "--model", of_model, "--out", "vectors.npy"),
    option(f"--layers last{DIGITS}", "embed", lambda place: place.text, "--model", of_model, "--out", "vectors.npy"),
    option("--layers nan,1,1", "embed", lambda place: place.text, "--model", of_model, "--out", "vectors.npy"),
    option("--layers 99", "embed", lambda place: place.text, "--model", of_model, "--out", "v.npy", says=("99",)),
    option("--samples 5", "knockout", "--corpus", lambda place: place.text, "--model", of_model),
    option("--layer 9", "features", "train", "--corpus", lambda place: place.text, "--model", of_model, "--out", "f"),
    option("--hidden 0", "probe", "absent.conll", "--model", of_model),
    option("--layers nan", "probe", "absent.conll", "--model", of_model, says=("nan",)),
    option("--rogue -1", "isotropy", "show", lambda place: place.text, "--model", of_model),
    option("--shrinkage nan", "isotropy", "show", lambda place: place.text, "--model", of_model),
]

CONFIGS = [
    config("layer_norm_eps", "NaN", "layer_norm_eps"),
    config("layer_norm_eps", "-1e-12", "layer_norm_eps"),
    config("layer_norm_eps", "1e400", "layer_norm_eps"),
    config("layer_norm_eps", '"small"', "layer_norm_eps"),
    config("hidden_dropout_prob", "NaN", "hidden_dropout_prob"),
    config("attention_probs_dropout_prob", "1.5", "attention_probs_dropout_prob"),
    config("initializer_range", "-Infinity", "initializer_range"),
    config("hidden_size", "0", "hidden_size"),
    config("hidden_size", "-16", "hidden_size"),
    config("hidden_size", "1000000000000000000000000000000", "hidden_size"),
    config("hidden_size", DIGITS),
    config("hidden_size", "true", "hidden_size"),
    config("hidden_size", "16.5", "hidden_size"),
    config("num_attention_heads", "0", "num_attention_heads"),
    config("num_hidden_layers", "100000", "num_hidden_layers"),
    config("vocab_size", "-1", "vocab_size"),
    config("vocab_size", "1000000000000", "vocab_size"),
    config("max_position_embeddings", "0", "max_position_embeddings"),
    config("type_vocab_size", "-2", "type_vocab_size"),
    config("intermediate_size", "null", "intermediate_size"),
]


def squad(start: str) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        text = (
            '{"data": [{"title": "t", "paragraphs": [{"context": "The bank lent money.", "qas": [{"id": "1", '
            f'"question": "Who?", "answers": [{{"text": "bank", "answer_start": {start}}}]}}]}}]}}]}}'
        )
        return [
            "finetune",
            "answer",
            "--model",
            place.model,
            "--train",
            place.write("train.json", text),
            "--out",
            "run",
        ]

    return command


DATA = [
    Case(f"answer_start {start[:20]}", squad(start), 4, ("train.json",))
    for start in ("-1", "1000000000000000000000000000000", "NaN", "4.5", "true", '"4"', DIGITS)
]


def scores(value: str) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        lines = [json.dumps({"text": f"words {n}", "score": n}) for n in range(20)]
        lines[7] = '{"text": "words", "score": VALUE}'.replace("VALUE", value)
        train = place.write("train.jsonl", "\n".join(lines) + "\n")
        return [
            *("finetune", "classify", "--model", place.model, "--train", train, "--out", "run"),
            *("--label", "score", "--labels", "regression", "--device", "cpu"),
        ]

    return command


SCORES = [
    Case(f"a score of {value[:20]}", scores(value), 4, ("train.jsonl",))
    for value in ("NaN", "Infinity", "1e999", '"high"', DIGITS)
]


def written(name: str, contents: str, *more: str, task: str = "classify") -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        train = place.write(name, contents)
        return ["finetune", task, "--model", place.model, "--train", train, "--out", "run", "--device", "cpu", *more]

    return command


CLASSES = "text\tlabel\n" + "good words\tyes\nbad words\tno\n" * 10
UNIVERSAL = "²-3\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n2\tde\t_\tADP\t_\t_\t_\t_\t_\t_\n3\tle\t_\tDET\t_\t_\t_\t_\t_\t_\n\n"
COLUMNS = [
    Case("a column of ²", written("train.tsv", CLASSES, "--text", "²"), 4, ("²",)),
    Case("a column of a table by 5,000 digits", written("train.tsv", CLASSES, "--text", DIGITS), 4, ("no column",)),
    Case("a column of 0", written("train.tsv", CLASSES, "--label", "0"), 4, ("no column 0",)),
    Case("a range of words from ²", written("train.conllu", UNIVERSAL * 5, task="tag"), 4, ("train.conllu", "²-3")),
    Case(
        "--span of 5,000 digits",
        lambda place: ["similar", "a bank", "b bank", "--model", place.model, *("--span", f"0:{DIGITS}") * 2],
        2,
        ("--span",),
    ),
]

CASES: list[Case] = [*COLUMNS, *SETTINGS, *FILES, *OPTIONS, *CONFIGS, *DATA, *SCORES]
