"""A suite over made-up data: figures equal the house's own functions, parts survive and resume, nothing is mixed."""

from __future__ import annotations

import functools
import io
import json
import lzma
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from rich.console import Console
from transformers import AutoModelForMaskedLM

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus.packing import ContiguousConfig
from larvatus.data.corruption import MaskingConfig
from larvatus.evaluation.compare.labelled_sets import baseline_scores, labelled_set, parse_sets
from larvatus.evaluation.compare.languages import open_text
from larvatus.evaluation.compare.minimal_pairs import MinimalPair
from larvatus.evaluation.compare.word_similarity import read_scws
from larvatus.evaluation.suite.masked import MinimalPairsPart, first_of_each_set
from larvatus.evaluation.suite.part import SuiteFigure
from larvatus.evaluation.suite.results import SuiteRow, as_markdown, as_table
from larvatus.evaluation.suite.run import get_suite
from larvatus.inference.senses.evaluate import paired_f1
from larvatus.inference.senses.wordnet import WordNet, unpack_wordnet
from larvatus.metrics.ranking import spearman_interval
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.directory import load_bundle
from larvatus.training.engine.reporter import rich_table
from larvatus.training.pretraining.evaluation import held_out_batches
from tests.inference.senses.conftest import DATA, GOLD, SEMCOR, write_wordnet

SENTENCES = ["the river was wide .", "turn your homework in , please .", "a deep bank and the river .", "run !"]
PAIRS = [
    ("agreement", "the river was wide .", "the river wide was ."),
    ("agreement", "turn your homework in .", "turn in your the ."),
    ("islands", "a deep bank .", "deep a bank ."),
]
PARTS = "masked,blimp,wnut17,senses,scws,wic,isotropy"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """All files of the suite but those of some fine-tuned parts; one of them compressed."""
    root = tmp_path_factory.mktemp("data")
    for folder in ("text", "glue/SST-2", "ner/wnut17", "senses/semcor", "senses/raganato/senseval2"):
        (root / folder).mkdir(parents=True)
    (root / "text/en_wiki.valid.txt").write_text("\n\n".join("\n".join(SENTENCES * 2) for _ in range(6)) + "\n")
    with lzma.open(root / "blimp.jsonl.xz", "wt") as file:
        for term, good, bad in PAIRS:
            row = {"sentence_good": good, "sentence_bad": bad, "UID": f"{term}_1", "linguistics_term": term}
            file.write(json.dumps(row) + "\n")
    rows = "".join(f"{int('wide' in text)}\t{text}\n" for text in SENTENCES[:2])
    (root / "glue/SST-2/train.tsv").write_text("label\tsentence\n" + rows * 10)
    (root / "glue/SST-2/dev.tsv").write_text("label\tsentence\n" + rows * 2)
    words = "the O\nriver B-location\nbank I-location\nwas O\n\n" + "turn O\nyour O\nhomework B-product\n\n"
    (root / "ner/wnut17/train.conll").write_text(words * 10)
    (root / "ner/wnut17/dev.conll").write_text(words)
    write_wordnet(root / "senses/wordnet30")
    (root / "senses/semcor/brown1_br-a01").write_text(SEMCOR)
    (root / "senses/raganato/senseval2/senseval2.data.xml").write_text(DATA)
    (root / "senses/raganato/senseval2/senseval2.gold.key.txt").write_text(GOLD)
    left = ["the <b> bank </b> was wide", "a deep <b> river </b> .", "turn your <b> homework </b> in"]
    right = ["was the <b> bank </b> deep ?", "your <b> river </b> and the", "please <b> run </b> !", "a <b> bank </b>"]
    lines = [f"{n}\ta\tn\tb\tn\t{left[n % 3]}\t{right[n % 4]}\t{n % 7}.0\t1.0\n" for n in range(12)]
    (root / "senses/scws.tsv").write_text("".join(lines))
    same = [{"label": n % 3 > 0, "word": "bank", "sentence1": "the bank", "sentence2": "a bank ."} for n in range(12)]
    (root / "senses/wic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in same))
    return root


@pytest.fixture(scope="module")
def models(tiny_model, save_tiny, tmp_path_factory) -> tuple[Path, Path]:
    """One that fills blanks, and one without any head."""
    home = tmp_path_factory.mktemp("models")
    return save_tiny(home / "masked", tiny_model()), save_tiny(home / "bare", tiny_model(1, ()), ())


@pytest.fixture(scope="module")
def measured(data, models, tmp_path_factory):
    out = tmp_path_factory.mktemp("suite") / "out"
    settings = {"only": PARTS, "seeds": 2, "epochs": 1, "quick": True, "device": "cpu", "quiet": True}
    lv.evaluate_suite(models[0], data=data, out=out, **settings)
    some = {**settings, "only": ["blimp", "scws"]}
    return out, settings, lv.evaluate_suite(models[0], data=data, out=out, beside=models[1], resume=True, **some)


@pytest.fixture
def larvatus(larvatus):
    return functools.partial(larvatus, "evaluate")


def starred(word):
    return f"{word.text[: word.start]}*{word.text[word.start : word.end]}*{word.text[word.end :]}"


def test_figures_are_those_of_the_functions_they_come_from(measured, data, models):
    _, _, results = measured
    pairs = lv.score_pairs(models[0], data / "blimp.jsonl.xz", device="cpu")
    assert results.figure("blimp").value == pairs.overall.share
    assert results.figure("blimp/islands").value == pairs.by["linguistics_term"]["islands"].share
    model, judged = lv.load(models[0], device="cpu"), list(read_scws(data / "senses/scws.tsv"))
    cosines = [model.similarity(starred(pair.a), starred(pair.b)) for pair in judged]
    expected = scipy.stats.spearmanr(cosines, [pair.rating for pair in judged]).statistic
    assert results.figure("scws").value == pytest.approx(expected, abs=1e-6)
    tuned = results.figure("wnut17")
    assert (tuned.seeds, tuned.examples, tuned.measure) == ((0, 1), 2, "entity F1")
    assert tuned.baselines == {"phrases looked up": 1.0}
    assert results.figure("wic").examples == 6
    assert results.figure("masked/accuracy").examples > 0
    assert results.figure("masked/words").better == "lower"


def test_a_model_without_a_masked_head_is_measured_on_the_rest_and_says_so(measured):
    _, _, results = measured
    assert "blimp" not in results.records["beside"]
    assert results.figure("scws", "beside").value is not None
    cells = {row.figures["model"].id: row.reasons for row in results.rows() if "model" in row.figures}
    assert cells["blimp"] == {"beside": "no masked head"}
    stream = io.StringIO()
    Console(file=stream, width=400).print(rich_table(as_table(results)))
    assert "no masked head" in stream.getvalue()
    assert "senseval3, semeval2007, semeval2013: not measured, the files are missing" in as_markdown(results)


def test_results_say_what_they_are_of_and_how_to_make_them_again(measured, models):
    out, _, results = measured
    told = json.loads((out / "suite.json").read_text())
    record = told["models"]["model"]["parts"]["wnut17"]
    assert set(record["of"]["data"]) == {"ner/wnut17/train.conll", "ner/wnut17/dev.conll"}
    assert record["of"]["settings"] == {
        "examples": None,
        "epochs": 1,
        "rate": None,
        "seeds": 2,
        "precision": "fp32",
    }
    assert f"larvatus evaluate {models[0]} --suite english" in record["command"]
    assert "--only wnut17 --epochs 1 --seeds 2" in record["command"]
    assert record["machine"]["torch"]
    assert record["made"].startswith("20")
    assert (out / "suite.md").read_text() == as_markdown(results)
    assert "people 88.6" in as_markdown(results)
    assert not list(out.glob("*/*.part"))


def test_a_resume_measures_only_what_is_missing_and_refuses_what_changed(measured, data, models, monkeypatch, larvatus):
    out, settings, results = measured
    value = results.figure("blimp").value
    (out / "model" / "blimp.json").unlink()
    names = []
    plain = MinimalPairsPart.measure
    monkeypatch.setattr(MinimalPairsPart, "measure", lambda self, work: names.append(self.name) or plain(self, work))
    again = lv.evaluate_suite(models[0], data=data, out=out, resume=True, **settings)
    assert (names, again.figure("blimp").value) == (["blimp"], value)
    assert set(again.records) == {"model", "beside"}  # what others measured stays in the table
    words = [models[0], "--suite", "english", "--data", data, "--out", out, "--device", "cpu"]
    code, _, said = larvatus(*words, "--only", "scws")
    assert code == 5
    assert "is measured already; continue with --resume, or measure again with --overwrite" in said
    code, _, said = larvatus(*words, "--resume", "--only", "wnut17", "--epochs", 2, "--seeds", 2)
    assert code == 5
    assert "wnut17.json is of something else: settings.epochs" in said
    for way in ("--resume", "--overwrite"):
        code, _, said = larvatus(models[1], *words[1:], "--only", "isotropy", way)
        assert code == 5
        assert "masked.json is of another model than" in said
    assert (out / "model" / "isotropy.json").exists()


def test_missing_files_are_said_and_the_rest_runs(data, models, larvatus):
    words = [models[0], "--suite", "english", "--data", data, "--device", "cpu", "--quick"]
    code, out, said = larvatus(*words, "--only", "ewt", "--only", "sst2", "--seeds", 1, "--epochs", 1)
    assert code == 0
    assert "commonest label 50.0" in out
    assert "BERT-base 93.5" in out
    assert f"ewt, masked: not measured: {data / 'pos/ewt/train.conllu'} is missing" in out
    code, out, said = larvatus(*words, "--only", "blimp,xquad", "--json")
    told = json.loads(out)
    assert (code, told["not_measured"][0]["part"]) == (0, "xquad")
    code, _, said = larvatus(*words, "--only", "ewt")
    assert code == 4
    assert "holds the files of no requested part" in said


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--data", "DATA", "--only", "blimb"], 2, "no part 'blimb'; did you mean blimp"),
        (["--data", "DATA", "--leave-out", PARTS, "--only", "blimp"], 2, "exclude every part"),
        (["--data", "absent"], 4, "--data absent is not a folder"),
        ([], 2, "reads its files from one folder: --data DIR"),
        (["--data", "DATA", "--corpus", "x.txt"], 2, "--suite cannot be combined"),
        (["--data", "DATA", "--resume"], 2, "need --out"),
        (["--data", "DATA", "--quantise", "int8"], 2, "a suite fine-tunes"),
        (["--data", "DATA", "--epochs", "0"], 2, "--epochs"),
        (["--data", "DATA", "--only", "wic", "--layers", "9"], 2, "there is no layer 9"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, code, expected, data, models, larvatus):
    given = [str(data) if word == "DATA" else word for word in words]
    ended, _, said = larvatus(models[0], "--suite", "english", *given)
    assert (ended, expected in said, said.count("\n")) == (code, True, 0)


def test_settings_of_a_suite_want_a_suite(models, larvatus):
    code, _, said = larvatus(models[0], "--corpus", "x.txt", "--beside", models[1])
    assert code == 2
    assert "--beside is for a suite of measurements; name one: --suite english" in said


def test_quick_pairs_are_the_first_of_each_set():
    pairs = [MinimalPair(good=str(n), bad="x", groups={"UID": "ab"[n % 2]}) for n in range(7)]
    assert [pair.good for pair in first_of_each_set(pairs, 2)] == ["0", "1", "2", "3"]


def test_shortcuts_by_hand(tmp_path):
    (tmp_path / "train.conll").write_text("the DET\nrun NOUN\n\nrun VERB\n\nrun VERB\n\n")
    (tmp_path / "dev.conll").write_text("run VERB\n\na DET\n\nrun NOUN\n\n")
    (source,) = parse_sets(f"tag={tmp_path}")
    assert baseline_scores(labelled_set(source), "accuracy") == {"word forms": pytest.approx(1 / 3)}


def test_the_interval_of_a_rank_correlation_covers_what_it_says():
    """Against the percentile bootstrap of scipy's ρ on the same ranks."""
    low, high = spearman_interval(0.5, 103)
    assert (round(low, 3), round(high, 3)) == (0.329, 0.639)
    assert all(end != end for end in spearman_interval(1.0, 50))


def test_wordnet_comes_out_of_an_archive_and_a_cut_one_is_refused(tmp_path):
    folder = write_wordnet(tmp_path / "plain")
    with tarfile.open(tmp_path / "wordnet.tar.xz", "w:xz") as archive:
        archive.add(folder, "wordnet")
    unpacked = unpack_wordnet(tmp_path / "wordnet.tar.xz", tmp_path / "aside" / "wordnet")
    assert WordNet.open(unpacked).fingerprint == WordNet.open(folder).fingerprint
    assert unpack_wordnet(folder, tmp_path / "never") == folder
    whole = (tmp_path / "wordnet.tar.xz").read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut.tar.xz"):
        unpack_wordnet(tmp_path / "cut.tar.xz", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_accuracy_at_blanks_and_copying_are_those_of_a_naive_loop(measured, data, models, tmp_path):
    """Masked tokens one by one, by `transformers`: only places that show [MASK], and a rule that copies."""
    bundle = load_bundle(models[0])
    corpus = open_text([str(data / "text/en_wiki.valid.txt")], bundle.tokenizer, tmp_path / "corpus")
    masking = MaskingConfig(rate=0.15, mask=0.8, random=0.1, keep=0.1, replacement="uniform")
    packing, length = ContiguousConfig(dressed=True), min(128, bundle.model.max_positions)
    batches = held_out_batches(corpus, packing, masking, length=length, tokens=131_072, microbatch=4_096)
    peer, mask = AutoModelForMaskedLM.from_pretrained(models[0]).eval(), bundle.tokenizer.id("[MASK]")
    frequent = Counter(token for number in range(len(corpus.chunks)) for token in corpus.block([number]).ids.tolist())
    commonest = frequent.most_common(1)[0][0]
    at_blanks, copied = [], []
    for batch in batches:
        for sequence in (batch.cut(n, n + 1) for n in range(batch.tokens.count)):
            shown, targets = sequence.tokens.ids, sequence.targets[MaskedTokens]
            guesses = peer(torch.from_numpy(shown)[None]).logits[0].argmax(-1).tolist()
            for place, true in zip(targets.places.tolist(), targets.ids.tolist(), strict=True):
                if shown[place] == mask:
                    at_blanks.append(guesses[place] == true)
                copied.append((commonest if shown[place] == mask else shown[place]) == true)
    everywhere, blanks = (measured[2].figure(f"masked/{name}") for name in ("accuracy", "blanks"))
    assert 0 < len(at_blanks) < len(copied)
    assert (blanks.examples, everywhere.examples) == (len(at_blanks), len(copied))
    assert blanks.value == pytest.approx(sum(at_blanks) / len(at_blanks))
    assert everywhere.baselines["copying"] == pytest.approx(sum(copied) / len(copied))


def test_two_sense_taggers_are_compared_on_resampled_sentences():
    """Against resampling in a loop; words of a sentence stay together."""
    rng = np.random.default_rng(0)
    totals = rng.integers(1, 9, 60).tolist()
    first = {str(n): (float(rng.integers(0, total + 1)), total, total) for n, total in enumerate(totals)}
    second = {name: (min(total, right + 1.0), total, total) for name, (right, _, total) in first.items()}
    found = paired_f1(first, second)
    share = {name: sum(row[0] for row in rows.values()) / sum(totals) for name, rows in (("a", first), ("b", second))}
    assert found.difference == pytest.approx(share["b"] - share["a"])
    gains = np.array([second[name][0] - first[name][0] for name in first])
    drawn = rng.integers(0, 60, (4000, 60))
    naive = np.quantile(gains[drawn].sum(1) / np.array(totals)[drawn].sum(1), [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(naive, abs=0.01)
    with pytest.raises(DataError, match="the same sentences"):
        paired_f1(first, {"other": (1.0, 1, 1)})


def test_the_better_is_marked_only_where_intervals_do_not_overlap():
    def row(low, high, better="higher"):
        common = {"id": "a", "name": "a", "measure": "F1", "by": "", "examples": 9, "better": better}
        figures = {
            "model": SuiteFigure(value=0.5, low=0.4, high=0.6, **common),
            "beside": SuiteFigure(value=(low + high) / 2, low=low, high=high, **common),
        }
        return SuiteRow(part="a", title="a", figures=figures, reasons={}).best

    assert [row(0.59, 0.8), row(0.61, 0.8), row(0.61, 0.8, "lower"), row(0.61, 0.8, None)] == [
        None,
        "beside",
        "model",
        None,
    ]


def test_every_reference_stands_beside_a_row_of_the_suite():
    suite = get_suite("english")
    names = {part.name for part in suite.parts}
    assert {id.partition("/")[0] for id in suite.references} <= names


def test_every_figure_of_the_model_is_a_claim_and_none_of_the_one_beside(measured, models) -> None:
    results = measured[2]
    claims = {claim.label: claim for claim in results.claims}
    figures = [figure for record in results.records["model"].values() for figure in record.figures]
    defined = [figure for figure in figures if figure.value is not None]
    assert len(claims) == len(results.claims) == len(defined) + sum(f.deviation is not None for f in figures)
    assert {claim.model for claim in claims.values()} == {model_digest(models[0])}
    tuned = claims["wnut17: entity F1 (1 epoch, 2 seeds)"]
    assert (tuned.value, tuned.settings["seeds"]) == (results.figure("wnut17").value, [0, 1])
    assert {data.name for data in tuned.data} == {"ner/wnut17/train.conll", "ner/wnut17/dev.conll"}
    assert "wnut17: entity F1, deviation over 2 seeds (1 epoch, 2 seeds)" in claims
    assert claims["blimp: islands: accuracy (first 100 pairs of each set)"].data[0].name == "blimp.jsonl.xz"
