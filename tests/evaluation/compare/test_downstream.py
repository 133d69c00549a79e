"""Models of a comparison after fine-tuning: the scores are those of `finetune` alone, and a stopped one continues."""

import dataclasses
import io
import itertools
import json
import os
import signal

import msgspec
import pytest
from rich.console import Console

import larvatus as lv
from larvatus.core.errors import ArtefactError, DataError, Preempted, UsageError
from larvatus.evaluation.compare import downstream as tuning
from larvatus.evaluation.compare.compare import Comparison, as_dict, compare, share_of_budget
from larvatus.evaluation.compare.downstream import Downstream
from larvatus.evaluation.compare.fine_tuned import FineTuneScore, SeedMean, SetFacts, fine_tuned_rows
from larvatus.evaluation.compare.labelled_sets import labelled_set, parse_sets, set_name
from larvatus.evaluation.compare.plot import draw
from larvatus.evaluation.compare.results import ComparisonResults, as_table, fine_tuned_table
from larvatus.evaluation.compare.runs import Candidate, read_candidates
from larvatus.interfaces.cli.main import run
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.reporter import Reporter, rich_table
from larvatus.training.engine.settings import Budget
from tests.evaluation.conftest import BERT, SMALL

QUIET = Reporter()
WORDS = {"pos": ("good", "fine", "great"), "neg": ("bad", "poor", "awful")}
SENTENCES = [
    (f"the film was {word} and {other}", label)
    for label, words in WORDS.items()
    for word, other in itertools.product(words, repeat=2)
]


def conll(sentences):
    tags = {"film": "N", "was": "V"}
    return "".join("".join(f"{w} {tags.get(w, 'A')}\n" for w in text.split()) + "\n" for text, _ in sentences)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A directory with folders of labelled sets."""
    home = tmp_path_factory.mktemp("sets")
    for name in ("reviews", "tags", "CoLA"):
        (home / name).mkdir()
    for part, chosen in (("train", SENTENCES), ("dev", SENTENCES[::2])):
        rows = "".join(f"{text}\t{label}\n" for text, label in chosen)
        (home / "reviews" / f"{part}.tsv").write_text(f"text\tlabel\n{rows}")
        (home / "tags" / f"{part}.conll").write_text(conll(chosen))
        judged = "".join(f"gj04\t{int(label == 'pos')}\t\t{text}\n" for text, label in chosen)
        (home / "CoLA" / f"{part}.tsv").write_text(judged)
    return home


@pytest.fixture(scope="module")
def plan(texts):
    """A function that makes a comparison of bert and gpt, one step each."""

    def make(out, downstream, **more):
        candidates = read_candidates("bert,gpt", settings=[*SMALL, *BERT])
        given = {"corpus": [str(texts / "train.txt")], "valid": str(texts / "valid.txt"), "budget": Budget(steps=1)}
        return Comparison(candidates=candidates, out=out, downstream=downstream, **{**given, **more})

    return make


@pytest.fixture(scope="module")
def asked(sets):
    words = [f"classify={sets / 'reviews'},tag={sets / 'tags'}"]
    return Downstream.read(words, ["epochs=1", "tag:batch=8"], labels=["bert", "gpt"], seeds=(0, 3))


@pytest.fixture(scope="module")
def compared(plan, asked, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "out"
    return out, compare(plan(out, asked), QUIET)


# — which sets —


def test_words_name_tasks_sets_and_files():
    words = ["classify=glue/SST-2,glue/RTE,tag:POS=a.conll:b.conll", "answer=x=y.json:z.json"]
    assert [(source.task, source.name, source.given) for source in parse_sets(words)] == [
        ("classify", None, "glue/SST-2"),
        ("classify", None, "glue/RTE"),
        ("tag", "POS", "a.conll:b.conll"),
        ("answer", None, "x=y.json:z.json"),
    ]
    given = {"tag": {"a": ("x", "y")}, "classify": ["one/", "two/"]}
    assert [(source.name, source.given) for source in parse_sets(given)] == [
        ("a", ("x", "y")),
        (None, "one/"),
        (None, "two/"),
    ]


def test_sets_are_read_from_directories_files_memory_and_glue_by_name(sets):
    def read(word, **more):
        (source,) = parse_sets(word)
        return labelled_set(source, **more)

    folder = read(f"classify={sets / 'reviews'}")
    assert (folder.name, len(folder.train), len(folder.dev), folder.metric) == ("reviews", 18, 9, None)
    files = [str(sets / "reviews" / f"{part}.tsv") for part in ("train", "dev", "train")]
    tested = read(f"classify={':'.join(files)}")
    assert tested.name == "reviews"
    assert tested.scored.examples == folder.train.examples
    assert tested.identity != folder.identity
    glue = read(f"classify={sets / 'cola'}")  # GLUE's own columns, without a header, and its metric
    assert (glue.name, glue.metric, glue.train.examples[0].text) == ("CoLA", "matthews", SENTENCES[0][0])
    alone = read(f"classify:mine={files[0]}")
    assert (alone.name, len(alone.train) + len(alone.dev)) == ("mine", 18)
    assert len(read(f"classify={sets / 'reviews'}", most=6).train) == 6
    memory = labelled_set(parse_sets({"classify": {"made": (SENTENCES, SENTENCES[::2])}})[0])
    assert memory.identity == {**folder.identity}


@pytest.mark.parametrize(
    ("then", "settings", "said"),
    [
        (["clasify=x"], [], "there is no task 'clasify' to fine-tune for; did you mean classify?"),
        (["reviews"], [], "--then reviews is no labelled set of a task; give TASK=DIRECTORY"),
        (["classify="], [], "is no labelled set of a task"),
        (["classify=nowhere"], [], "--then classify: nowhere does not exist; give TASK=DIRECTORY"),
        (["tag={sets}"], [], "has no train file; give TASK=DIRECTORY"),
        (["classify={sets}/reviews,{sets}/reviews"], [], "two labelled sets are called reviews; name them: --then"),
        (["classify={sets}/reviews"], ["epoch=3"], "--then-set: finetune has no setting 'epoch'; did you mean epochs?"),
        (["classify={sets}/reviews"], ["epochs"], "--then-set epochs is not name=value"),
        (["classify={sets}/reviews"], ["seeds=3"], "--then-set seeds=3: use --then-seeds for that"),
        (["classify={sets}/reviews"], ["crf=true"], "--then-set: crf belongs to finetune tag, not classify"),
        (["classify={sets}/reviews"], ["review:epochs=3"], "'review' is no task, set or candidate here; did you"),
        ([], ["epochs=3"], "go with --then TASK=PATH"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained(sets, then, settings, said):
    with pytest.raises((UsageError, DataError)) as refused:
        Downstream.read([word.format(sets=sets) for word in then], settings, labels=["bert"])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_on_one_line_and_writes_nothing(sets, texts, tmp_path, capsys):
    given = ["--corpus", texts / "train.txt", "--out", tmp_path / "out", "--steps", 1, "--then", f"classify={sets}"]
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in ("compare", "bert", *given)])
    assert ended.value.code == 4
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_settings_are_for_all_for_a_task_a_set_or_a_candidate_the_narrower_the_stronger(sets):
    words = ["epochs=1", "reviews:epochs=3", "classify:epochs=2", "classify:rate=1e-4", "gpt:rate=2e-4"]
    asked = Downstream.read(f"classify={sets / 'reviews'}", words, labels=["bert", "gpt"])
    (data,) = asked.sets
    assert [asked.job(data, label).config.rate for label in ("bert", "gpt")] == [1e-4, 2e-4]
    assert asked.job(data, "bert").config.epochs == 3
    assert asked.job(data, "bert", tuning=["epochs=9"]).config.epochs == 9
    columns = ["label=none", "reviews:label=text", "text=label", "header=true"]
    with pytest.raises(DataError, match="--then classify: "):  # no such column, or all texts are labels
        Downstream.read(f"classify={sets / 'reviews'}", columns[:1])
    swapped = Downstream.read(f"classify={sets / 'reviews'}", columns).sets[0].train.examples[0]
    assert (swapped.text, swapped.label) == SENTENCES[0][::-1]


# — the scores —


def test_scores_are_those_of_fine_tuning_alone(compared, sets):
    out, results = compared
    assert len(results.tuned) == 2 * 2 * 2
    for result in (results.tuned[0], results.tuned[-1]):
        name = "reviews" if result.task == "classify" else "tags"
        train, dev = (next((sets / name).glob(f"{part}.*")) for part in ("train", "dev"))
        batch = {} if result.task == "classify" else {"batch": 8}
        settings = {"epochs": 1, "seed": result.tuning_seed, "device": "cpu", **batch}
        model = lv.finetune(result.task, out / result.label, train=train, dev=dev, **settings)
        alone = lv.evaluate(model, data=dev).metrics[result.metric]
        assert (alone.value, alone.low, alone.high) == (result.value, result.low, result.high)


def test_the_table_the_plot_and_the_file_have_them(compared, tmp_path):
    out, results = compared
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(rich_table(fine_tuned_table(results)))
    said = console.export_text()
    rows = {row.name: row for row in results.fine_tuned_rows()}
    assert list(rows) == ["reviews accuracy", "tags accuracy", "average"]
    mean = sum(r.value for r in results.tuned if (r.label, r.set) == ("bert", "reviews")) / 2
    assert rows["reviews accuracy"].values["bert"].mean == pytest.approx(mean)
    assert f"{mean:.1%}" in said
    assert "over 2 seeds" in said
    assert "reviews 18 and 9" in said
    plain = Console(width=200, record=True, file=io.StringIO())
    plain.print(rich_table(as_table(results)))
    assert "reviews" not in plain.export_text()
    kept = json.loads((out / "results.json").read_text())
    assert kept == json.loads(json.dumps(as_dict(results)))
    assert set(kept["seconds"]) == {"text", "pretraining", "fine-tuning"}
    assert {row["name"] for row in kept["rows"]} >= set(rows)
    assert draw(results, tmp_path / "plot.png")
    runs = tuple(msgspec.structs.replace(run, curve=()) for run in results.runs)
    assert draw(
        ComparisonResults(runs=runs, budget="", sets=results.sets, tuned=results.tuned), tmp_path / "scores.png"
    )


def test_equal_steps_are_not_equal_text_and_the_table_says_how_much(compared):
    _, results = compared
    seen = {run.label: run.words for run in results.runs}
    row = next(row for row in results.rows() if row.name == "words of text seen")
    assert {label: value.mean for label, value in row.values.items()} == seen
    assert any(note.startswith("not all saw as much text") for note in results.notes) == (
        max(seen.values()) > 1.05 * min(seen.values())
    )


# — stopped and resumed —


def test_a_finished_comparison_is_taken_as_it_is_and_sets_may_be_added(compared, plan, asked, sets, monkeypatch):
    out, results = compared
    more = Downstream.read(
        [f"classify={sets / 'reviews'},{sets / 'CoLA'},tag={sets / 'tags'}"],
        ["epochs=1", "tag:batch=8"],
        seeds=(0, 3),
    )
    trained = []
    finetune = tuning.finetune
    monkeypatch.setattr(tuning, "finetune", lambda *given: trained.append(given[2].source) or finetune(*given))
    again = compare(plan(out, asked, resume=True), QUIET)
    assert not trained
    assert again.tuned == results.tuned
    added = compare(plan(out, more, resume=True), QUIET)
    assert len(trained) == 2 * 2
    assert all("CoLA" in source for source in trained)
    assert [r for r in added.tuned if r.set != "CoLA"] == list(results.tuned)
    other = Downstream.read([f"classify={sets / 'reviews'}"], ["epochs=2"], seeds=(0,))
    with pytest.raises(ArtefactError, match=r"result.json is of something else: settings.epochs: 1 → 2; delete it"):
        compare(plan(out, other, resume=True), QUIET)


def test_a_fine_tuning_that_is_stopped_goes_on_to_the_same_scores(compared, plan, asked, tmp_path, monkeypatch):
    """Stopped in the second of three steps of a tagger: what is done is taken as it is, the tagger continues."""
    given = plan(tmp_path / "out", asked)
    given = dataclasses.replace(given, candidates=given.candidates[:1])
    steps, step = [], Trainer.step

    def stopping(self):
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        with pytest.raises(
            Preempted, match=r"bert, seed 0: tags: SIGTERM stopped it at step 2 of 3, where it was saved"
        ):
            compare(given, QUIET)
    resumed = compare(dataclasses.replace(given, resume=True), QUIET)

    def scores(results):
        return [(r.set, r.tuning_seed, r.value, r.low, r.high) for r in results.tuned if r.label == "bert"]

    assert scores(resumed) == scores(compared[1])


# — what cannot be —


def test_a_model_that_refuses_a_task_has_a_dash_and_a_note(compared, plan, asked, monkeypatch):
    out, _ = compared
    finetune = tuning.finetune

    def refusing(task, bundle, *given):
        if task == "tag" and bundle.path.name == "gpt":
            raise UsageError("its vocabulary keeps no track of words")
        return finetune(task, bundle, *given)

    monkeypatch.setattr(tuning, "finetune", refusing)
    one = dataclasses.replace(asked, seeds=(7, 8))
    results = compare(plan(out, one, resume=True), QUIET)
    assert [(each.label, each.set) for each in results.refusals] == [("gpt", "tags")]
    rows = {row.name: row.values for row in results.fine_tuned_rows()}
    assert rows["tags accuracy"]["gpt"] is None is rows["average"]["gpt"]
    assert rows["tags accuracy"]["bert"] is not None
    note = fine_tuned_table(results).notes[-1].text
    assert note == "note: gpt was not fine-tuned on tags: its vocabulary keeps no track of words"


def test_models_that_fill_no_blanks_have_dashes_and_a_note(compared):
    _, results = compared
    assert "gpt: no masked-lm head to fill blanks with, so no line of the same words" in results.notes
    rows = {row.name: row for row in results.rows()}
    assert rows["words right"].values["gpt"] is None
    assert rows["words right"].values["bert"] is not None
    assert [run.predicts for run in results.runs] == ["masked-lm", "causal-lm"]
    assert all(run.curve and run.gain is not None for run in results.runs)


# — variants that differ downstream —


def test_variants_that_differ_in_fine_tuning_alone_are_pretrained_once(plan, asked, tmp_path):
    recipe = read_candidates("bert", settings=[*SMALL, *BERT])[0].recipe
    candidates = (
        Candidate("all", recipe),
        Candidate("head", recipe, tuning=("trained=head",)),
        Candidate("crf", recipe, tuning=("crf=true",)),
        Candidate("half", recipe, share=0.5),
    )
    one = dataclasses.replace(asked, seeds=(0,))
    made = dataclasses.replace(plan(tmp_path / "out", one), candidates=candidates, budget=Budget(steps=2))
    results = compare(made, QUIET)
    models = sorted(path.parent.name for path in (tmp_path / "out").glob("*/model.safetensors"))
    assert models == ["all", "half"]
    assert [run.steps for run in results.runs] == [2, 2, 2, 1]
    assert [(each.label, each.set, each.why) for each in results.refusals] == [
        ("crf", "reviews", "crf belongs to finetune tag, not classify")
    ]
    trained = {(r.label, r.set): r.trained for r in results.tuned}
    assert trained["head", "reviews"] < trained["all", "reviews"] == trained["half", "reviews"]


def test_a_share_of_a_budget():
    assert share_of_budget(Budget(steps=10), 0.25) == Budget(steps=2)
    assert share_of_budget(Budget(epochs=2.0), 0.25) == Budget(epochs=0.5)
    assert share_of_budget(Budget(tokens=1), 0.1) == Budget(tokens=1)


def test_every_set_has_a_name_without_being_read():
    given = ["classify=glue/RTE/train.tsv:x.tsv", "answer=a/tydiqa.goldp.json:b.json", "tag:mine=x"]
    assert [set_name(source) for source in parse_sets(given)] == ["RTE", "tydiqa", "mine"]


def test_a_score_that_is_not_defined_is_a_dash():
    one = FineTuneScore(
        label="a", seed=0, set="s", task="classify", tuning_seed=0, metric="spearman", value=None, low=None, high=None,
        steps=1, trained=1, training_seconds=0.0, seconds=0.0,
    )  # fmt: skip
    known = msgspec.structs.replace(one, label="b", value=0.5)
    (row,) = fine_tuned_rows(
        [one, known], [SetFacts(name="s", task="classify", train=1, scored=1, source="x")], ["a", "b"]
    )
    assert row.values == {"a": None, "b": SeedMean(mean=0.5)}
