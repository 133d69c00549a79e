"""Several languages from raw text to an evaluation by language, as a user types it; what cannot work is one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corruption import Corruption, MaskVocabulary
from larvatus.data.text.languages import LanguagePath
from larvatus.evaluation.compare.languages import _frequencies, evaluate_text, open_text
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.device import on_device
from larvatus.models.recipes import parse_recipe
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import HELD_OUT_SEED, HeldOutScores, ObjectiveScore, merge_languages
from tests.data.text.test_languages import prose

SMALL = (
    "tokenizer.size=300",
    "model.layers=1",
    "model.hidden=32",
    "model.heads=2",
    "model.max_positions=64",
    "phases.0.length=48",
    "batch=8",
)


def paragraphs(language: str, count: int, seed: int) -> str:
    return "\n\n".join(prose(language, 4, seed=1000 * seed + n) for n in range(count))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name, seed, counts in (("train", 1, {"big": 240, "low": 110}), ("held", 2, {"big": 30, "low": 30})):
        for language, count in counts.items():
            (folder / name / language).mkdir(parents=True)
            (folder / name / language / "a.txt").write_text(paragraphs(language, count, seed))
    (folder / "empty").mkdir()
    (folder / "blank").mkdir()
    (folder / "blank" / "a.txt").write_text(" \n\n")
    return folder


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    assert ended.value.code == 0


def named(texts: Path, part: str) -> list[str]:
    return [word for name in ("big", "low") for word in ("--language", f"{name}={texts / part / name}")]


@pytest.fixture(scope="module")
def model(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XLM-R, very small, from two made-up languages."""
    out = tmp_path_factory.mktemp("model") / "run"
    settings = [word for one in SMALL for word in ("--set", one)]
    command("pretrain", "xlm-r", *settings, *named(texts, "train"), "--steps", 6, "--out", out, "--device", "cpu")
    return out


def test_pretraining_holds_out_and_reports_every_language(model: Path) -> None:
    last = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()][-1]
    assert set(last["languages"]) == {"big", "low"}
    card = (model / "README.md").read_text()
    assert "length 48: low: masked-lm loss" in card
    assert "Languages (documents): big 236, low 108." in card  # every fiftieth of each is held out
    assert json.loads((model / "config.json").read_text())["model_type"] == "xlm-roberta"
    assert Corpus.open(model / "corpus" / "valid").languages == ("big", "low")


def test_the_vocabulary_of_a_run_is_learnt_from_the_mixture(model: Path, texts: Path, tmp_path: Path) -> None:
    """And from the training text alone: every fiftieth document is taken out here by hand."""
    for name in ("big", "low"):
        documents = (texts / "train" / name / "a.txt").read_text().split("\n\n")
        kept = [document for number, document in enumerate(documents, 1) if number % 50]
        (tmp_path / "trained" / name).mkdir(parents=True)
        (tmp_path / "trained" / name / "a.txt").write_text("\n\n".join(kept))
    for alpha in (0.3, 1.0):
        command(
            *(
                "tokenizer",
                "train",
                "--type",
                "unigram",
                "--size",
                300,
                "--alpha",
                alpha,
                "--out",
                tmp_path / f"{alpha}",
            ),
            *named(tmp_path, "trained"),
        )
    own = (model / "vocabulary" / "tokenizer.json").read_text()
    assert own == (tmp_path / "0.3" / "tokenizer.json").read_text()
    assert own != (tmp_path / "1.0" / "tokenizer.json").read_text()


def test_a_corpus_is_built_and_shown_by_language(model: Path, texts: Path, tmp_path: Path, capsys) -> None:
    build = ("corpus", "build", *named(texts, "train"), "--tokenizer", model, "--out", tmp_path / "c", "--workers", 1)
    command(*build, "--json")
    found = json.loads(capsys.readouterr().out)
    assert {name: counts["documents"] for name, counts in found["languages"].items()} == {"big": 240, "low": 110}
    shares = found["mixture"]["languages"]
    p = 110 / 350
    assert shares["low"]["p"] == pytest.approx(p)
    assert shares["low"]["q"] == pytest.approx(p**0.3 / (p**0.3 + (1 - p) ** 0.3))
    counts = found["languages"]["low"]
    assert shares["low"]["fertility"] == pytest.approx(counts["tokens"] / counts["words"])
    command(*build)  # again: nothing to do, and the table
    said = capsys.readouterr().out
    assert "unchanged" in said
    assert "sampling with α = 0.3" in said
    command("corpus", "show", tmp_path / "c", "--alpha", 0)
    said = capsys.readouterr().out
    assert said.count("0.5000") == 2
    assert "fertility" in said


def test_evaluation_by_language_as_a_table_and_as_json(model: Path, texts: Path, capsys) -> None:
    command("evaluate", model, *named(texts, "held"), "--by", "language", "--json", "--device", "cpu")
    rows = {row["language"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["big", "low", "all"]
    for row in rows.values():
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
        assert 0 < row["unigram_loss"] < math.log(300)
    assert rows["all"]["hidden"] == rows["big"]["hidden"] + rows["low"]["hidden"]
    mean = sum(rows[name]["loss"] * rows[name]["hidden"] for name in ("big", "low")) / rows["all"]["hidden"]
    assert rows["all"]["loss"] == pytest.approx(mean)
    command("evaluate", model, *named(texts, "held"), "--device", "cpu")
    table = capsys.readouterr().out
    assert f"{rows['all']['loss']:.3f}" in table
    assert "low" not in table


def test_a_language_alone_is_scored_as_a_plain_loop_would(model: Path, texts: Path, tmp_path: Path) -> None:
    """Loss, accuracy and the guess from frequencies, sequence by sequence in float64."""
    bundle = load_bundle(model)
    corpus = open_text([LanguagePath(n, str(texts / "held" / n)) for n in ("big", "low")], bundle.tokenizer, tmp_path)
    result = evaluate_text(bundle, corpus, runtime=Runtime(), tokens=10**6).languages["low"]
    recipe, known = parse_recipe(bundle.recipe or {}, where="x"), bundle.tokenizer
    vocabulary = MaskVocabulary(
        mask_id=known.mask_id, size=known.size, special_ids=known.special_ids, counts=known.counts
    )
    loader = Loader(
        corpus, packing=recipe.packing, length=48, corruption=Corruption(recipe.corruption, vocabulary, HELD_OUT_SEED),
        tokens=48, seed=HELD_OUT_SEED, reading=LoaderOptions(purpose="valid", language="low"),
    )  # fmt: skip
    frequency = _frequencies(corpus, "low") / corpus.manifest.languages["low"].tokens
    losses, right, surprise = [], 0, []
    words = bundle.network.encoder.embeddings.words.weight
    for batch in loader.evaluation():
        hidden = batch.targets[MaskedTokens]
        with torch.inference_mode():
            z_ND = bundle.network.encoder(on_device(batch, "cpu").tokens)
            logits = bundle.network.objectives["masked-lm"].logits(z_ND, words).double()
        for place, id in zip(hidden.places.tolist(), hidden.ids.tolist(), strict=True):
            losses.append(-float(logits[place].log_softmax(-1)[id]))
            right += int(logits[place].argmax()) == id
            surprise.append(-math.log(frequency[id]))
    score = result.scores["masked-lm"]
    assert score.count == len(losses)
    assert score.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert score.accuracy == pytest.approx(right / len(losses))
    assert result.guess_loss == pytest.approx(np.mean(surprise))


def test_results_together_are_means_over_predictions() -> None:
    def one(loss: float, count: int) -> HeldOutScores:
        score = ObjectiveScore(loss=loss, accuracy=loss / 10, count=count)
        return HeldOutScores(scores={"masked-lm": score}, tokens=10 * count, guess_accuracy=0.1, guess_loss=2 * loss)

    all_of_it = merge_languages({"a": one(1.0, 10), "b": one(3.0, 30)})
    assert all_of_it.scores["masked-lm"] == ObjectiveScore(loss=2.5, accuracy=0.25, count=40)
    assert (all_of_it.tokens, all_of_it.guess_loss) == (400, 5.0)
    assert merge_languages({"a": HeldOutScores(scores={}, tokens=3)}).guess_loss is None


def test_a_directory_without_a_recipe_is_evaluated_as_its_heads_need(save_tiny, tiny_model, texts, tmp_path) -> None:
    directory = save_tiny(tmp_path / "tiny", tiny_model())
    (directory / "larvatus.json").unlink()  # as transformers would have written it
    bundle = load_bundle(directory)
    corpus = open_text([LanguagePath("en", str(texts / "held" / "big"))], bundle.tokenizer, tmp_path / "c")
    result = evaluate_text(bundle, corpus, runtime=Runtime(), tokens=2000)
    assert set(result.scores) == {"masked-lm", "next-sentence"}
    assert result.languages == {}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--language", "ee={empty}"), 4, "{empty} holds no text"),
        (("--language", "ee={blank}"), 4, "{blank} holds no text for --language ee"),
        (("--language", "ee={blank}/absent"), 4, "absent does not exist"),
        (("--language", "ee"), 2, "--language ee names no text; give its path: --language ee=PATH"),
        (("{big}", "--language", "ee", "--language", "sw"), 2, "--language sw names no text"),
        (("{big}", "--language", "../x"), 2, "is no language code"),
        (("--language", "e1={big}"), 2, "'e1' is no language code"),
        (("{big}", "--alpha", "1.5"), 2, "--alpha = 1.5 must lie between 0 and 1"),
        ((), 2, "no text was named; give PATHS, or --language xx=PATH"),
    ],
)
@pytest.mark.parametrize("name", ["corpus build", "tokenizer train"])
def test_bad_languages_are_one_line(
    name: str, words: tuple[str, ...], code: int, says: str, model: Path, texts: Path, tmp_path: Path, capsys
) -> None:
    places = {"empty": texts / "empty", "blank": texts / "blank", "big": texts / "train" / "big"}
    more = ("--tokenizer", str(model)) if name == "corpus build" else ("--size", "100")
    with pytest.raises(SystemExit) as ended:
        run([*name.split(), *more, "--out", str(tmp_path / "out"), *(word.format(**places) for word in words)])
    said = capsys.readouterr().err.strip()
    assert (ended.value.code, says.format(**places) in said) == (code, True), said
    assert "\n" not in said


def test_evaluation_refuses_what_it_cannot_read(
    model: Path, texts: Path, save_tiny, tiny_model, tmp_path, capsys
) -> None:
    tiny = save_tiny(tmp_path / "tiny", tiny_model())
    for words, code, says in (
        ((model,), 2, "no text was named; give --corpus PATH"),
        ((tiny, "--corpus", model / "corpus" / "valid"), 2, "was built with another vocabulary than the model's"),
        ((tmp_path / "absent", "--corpus", texts), 5, "is not a directory here"),
        ((model, "--corpus", texts, "--by", "speaker"), 2, "speaker"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(["evaluate", *map(str, words)])
        said = capsys.readouterr().err.strip()
        assert (ended.value.code, says in said) == (code, True), said
        assert "\n" not in said
