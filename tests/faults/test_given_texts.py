"""Values in Python calls that take texts (row 82): accepted where they are plainly texts, else named by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.interfaces.client.connections import Connections
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig

TEXTS = ["the [MASK] *river* was wide", "a *bank* of the [MASK]"]
WORDS = {"wet": "river", "dry": "bank"}
HEADS = {
    "classify": ClassificationConfig(labels=("bad", "good")),
    "tag": TaggingConfig(labels=("O", "B-X"), scheme="BIO"),
}

BAD: dict[str, tuple[Any, str]] = {
    "None": (None, r" is None, not text"),
    "NaN": (float("nan"), r" is NaN, not text"),
    "pandas.NA": (pd.NA, r" is <NA>, not text"),
    "bytes": (b"the river", r" is bytes, not text.*decode"),
    "int": (3, r" is int, not text"),
    "numpy int": (np.int64(3), r" is int64, not text"),
    "Arrow null": (pa.scalar(None, pa.string()), r" is None, not text"),
    "Arrow number": (pa.scalar(3), r" is Int64Scalar, not text"),
    "a None in a list": ([TEXTS[0], None], r"\[1\] is None, not text"),
    "a NaN in a Series": (pd.Series([TEXTS[0], None], dtype=object), r"\[1\] is (NaN|None), not text"),
    "NA in a Series": (pd.Series([TEXTS[0], None], dtype="string"), r"\[1\] is <NA>, not text"),
    "null in an Arrow array": (pa.array([TEXTS[0], None]), r"\[1\] is None, not text"),
    "bytes in a list": ([TEXTS[0], b"river"], r"\[1\] is bytes, not text.*decode"),
    "a number in a list": ([TEXTS[0], 3.5], r"\[1\] is float, not text"),
    "a number in an array": (np.array([1, 2]), r"\[0\] is int, not text"),
    "deep lists": ([[[[TEXTS[0]]]]], r"\[0\].* is list, not text"),
    "None in words": ([["the", None]], r"\[0\](\[1\] is None| is list), not text"),
    "a set": ({TEXTS[0]}, r" is set, not text"),
    "a DataFrame": (pd.DataFrame({"text": TEXTS}), r" is a whole DataFrame, not text.*one of its columns"),
    "an Arrow table": (pa.table({"text": TEXTS}), r" is a whole Table, not text"),
    "an object": (object(), r" is object, not text"),
}
GOOD: dict[str, Callable[[], Any]] = {
    "a tuple in a list": lambda: list(TEXTS),
    "NumPy strings": lambda: np.array(TEXTS),
    "NumPy objects": lambda: np.array(TEXTS, dtype=object),
    "a Series": lambda: pd.Series(TEXTS),
    "a Series of strings": lambda: pd.Series(TEXTS, dtype="string"),
    "a categorical": lambda: pd.Series(TEXTS, dtype="category"),
    "an Arrow array": lambda: pa.array(TEXTS),
    "Arrow chunks": lambda: pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "Arrow scalars": lambda: [pa.scalar(text) for text in TEXTS],
    "a generator": lambda: (text for text in TEXTS),
    "an iterator": lambda: iter(TEXTS),
}
ONE: dict[str, Any] = {
    "numpy.str_": np.str_(TEXTS[0]),
    "an Arrow scalar": pa.scalar(TEXTS[0]),
    "an array of no dimensions": np.array(TEXTS[0]),
}


@pytest.fixture(scope="module")
def models(tiny_model: Any, save_tiny: Any, tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    causal, lm = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=32), (CausalLMConfig(),)
    save_tiny(folder / "gpt", Network.build(causal, lm, tiny_tokenizer.size, seed=1), lm)
    save_tiny(folder / "mlm", tiny_model())
    for name, head in HEADS.items():
        save_tiny(folder / name, tiny_model(objectives=(head,)), (head,))
    return {name: lv.load(folder / name, device="cpu") for name in ("mlm", "gpt", *HEADS)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("corpus") / "rivers.txt"
    path.write_text("the river was wide .\na bank of the river .\n" * 4, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def fitted(models: Any) -> dict[str, Any]:
    quick: dict[str, Any] = {"epochs": 1, "device": "cpu"}
    path = str(models["mlm"].bundle.path)
    classifier = lv.TextClassifier(path, **quick).fit(["the river", "a bank"] * 4, ["x", "y"] * 4)
    tagger = lv.WordTagger(path, **quick).fit([["the", "river"], ["a", "bank"]] * 4, [["O", "B-X"]] * 8)
    return {"classifier": classifier, "tagger": tagger}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[lv.Client]:
    """One whose server answers with what it was sent."""

    def echo(self: Connections, method: str, path: str, body: Any = None) -> Any:
        listed = body.get("texts") or body.get("questions") or body.get("query") or [body.get("text")]
        vector = {"units": [{"vector": [1.0]}]} if path.endswith("embed") else {}
        results = [{"given": each, **vector} for each in listed]
        whole: dict[str, Any] = {
            name: [] for name in ("instances", "cosines", "clusters", "nearest", "tokens", "weights")
        }
        return {**whole, "results": results}

    monkeypatch.setattr(Connections, "ask", echo)
    with lv.Client("http://127.0.0.1:1") as client:
        yield client


Calls = dict[str, Callable[[Any], Any]]
SEVERAL = (
    *(
        "fill",
        "score",
        "embed",
        "vectors",
        "attention",
        "similarities",
        "generate",
        "classify",
        "call",
        "tag",
        "prompt",
    ),
    *("nearest", "TextClassifier.predict", "Tokenizer.encode_many", "Tokenizer.encode_fast", "Tokenizer.encode_flat"),
    *(
        "Client.fill",
        "Client.embed",
        "Client.similar",
        "Client.senses",
        "Client.classify",
        "Client.tag",
        "Client.spans",
    ),
    *("Client.score", "Client.search"),
)
"""Calls that take several texts."""
FEW = ("map", "similarity a", "similarity b", "Tokenizer.encode", "Tokenizer.encode_spans", "Client.attention")
"""Calls that take one text, or words."""
NO_RESULT = (
    *("TextClassifier.fit", "WordTagger.fit", "SenseTagger.tag", "WordTagger.predict", "WordTagger.predict_proba"),
    *("Client.answer", "Client.rerank", "score_pairs"),
)
"""Calls whose good input is something else than a list of texts."""


@pytest.fixture
def calls(models: Any, corpus: str, fitted: Any, client: lv.Client) -> Calls:
    mlm, tokenizer = models["mlm"], models["mlm"].tokenizer
    return {
        "fill": mlm.fill,
        "score": mlm.score,
        "embed": mlm.embed,
        "vectors": mlm.vectors,
        "attention": mlm.attention,
        "similarities": mlm.similarities,
        "generate": lambda given: models["gpt"].generate(given, max_tokens=1),
        "classify": models["classify"].predict,
        "call": models["classify"],
        "tag": models["tag"].predict,
        "prompt": lambda given: mlm.prompt(given, WORDS),
        "nearest": lambda given: mlm.nearest(given, corpus, top=1),
        "map": lambda given: mlm.map(given, corpus, method="pca", clusters=1),
        "similarity a": lambda given: mlm.similarity(given, TEXTS[0]),
        "similarity b": lambda given: mlm.similarity(TEXTS[0], given),
        "SenseTagger.tag": object.__new__(SenseTagger).tag,
        "TextClassifier.fit": lambda given: fitted["classifier"].fit(given, ["x", "y"]),
        "WordTagger.fit": lambda given: fitted["tagger"].fit(given, [["O"]]),
        "TextClassifier.predict": fitted["classifier"].predict,
        "WordTagger.predict": fitted["tagger"].predict,
        "WordTagger.predict_proba": fitted["tagger"].predict_proba,
        "Tokenizer.encode": tokenizer.encode,
        "Tokenizer.encode_spans": tokenizer.encode_spans,
        "Tokenizer.encode_many": tokenizer.encode_many,
        "Tokenizer.encode_fast": tokenizer.encode_fast,
        "Tokenizer.encode_flat": tokenizer.encode_flat,
        "score_pairs": lambda given: lv.score_pairs(mlm, given),
        **{f"Client.{name}": getattr(client, name) for name in ("fill", "embed", "similar", "senses", "classify")},
        **{f"Client.{name}": getattr(client, name) for name in ("tag", "spans", "answer", "score", "attention")},
        "Client.search": client.search,
        "Client.rerank": lambda given: client.rerank("the river", given),
    }


def test_the_table_has_all_calls(calls: Calls) -> None:
    assert set(calls) == {*SEVERAL, *FEW, *NO_RESULT}
    methods = {name for name in dir(lv.Client) if not name.startswith("_")} - {"models", "close", "ask"}
    assert methods <= {name.removeprefix("Client.") for name in calls}


@pytest.mark.parametrize("bad", BAD)
def test_82_what_is_no_text_is_named_in_every_call(bad: str, calls: Calls) -> None:
    value, said = BAD[bad]
    for name, call in calls.items():
        if bad == "a DataFrame" and name.startswith("TextClassifier"):
            continue  # scikit-learn's way: a column of texts, or two of pairs
        with pytest.raises(UsageError) as caught:
            call(value)
        if name in FEW or name in NO_RESULT:
            assert " is " in str(caught.value), name
        else:
            caught.match(said)


@pytest.mark.parametrize("good", GOOD)
def test_82_texts_of_other_libraries_are_read_as_the_same_texts_in_a_list(good: str, calls: Calls) -> None:
    for name in SEVERAL:
        assert repr(calls[name](GOOD[good]())) == repr(calls[name](list(TEXTS))), name


@pytest.mark.parametrize("one", ONE)
def test_82_a_scalar_that_is_a_text_is_one_text(one: str, calls: Calls) -> None:
    for name in (*SEVERAL, *FEW):
        if name != "TextClassifier.predict" and not name.startswith("map") and name != "similarities":
            assert repr(calls[name](ONE[one])) == repr(calls[name](TEXTS[0])), name


def test_82_words_and_pairs_of_other_libraries_are_read(calls: Calls) -> None:
    words = ["the", "river"]
    for given in ([np.array(words)], [pd.Series(words)], pa.array([words]), pd.Series([words]), [tuple(words)]):
        for name in ("embed", "tag", "WordTagger.predict", "Client.embed", "Client.tag"):
            assert len(calls[name](given)) == 1, name
    pair = ("the river", np.str_("a bank"))
    assert calls["classify"](pair).pair == "a bank"
    assert calls["score_pairs"](iter([pair])).overall.total == 1
    assert calls["Client.answer"](pair)["given"] == {"question": "the river", "passage": "a bank"}
