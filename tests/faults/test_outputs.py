"""Row 71: an output that exists is replaced only with --overwrite, one that is read never, and a device never."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import ArtefactError, LarvatusError, UsageError
from larvatus.core.outputs import check_directory, check_outputs, is_stream, new_output, write_output
from larvatus.interfaces.cli.commands import demo
from larvatus.models.heads import ClassificationConfig
from tests.made_up import QUICK, classes, sentences
from tests.patience import WATCHDOG_S

Larvatus = Callable[..., tuple[int, str]]
CLASSES = ClassificationConfig(labels=("bad", "good"))

FILES: dict[str, list[object]] = {
    "predict": ["predict", "absent", "text", "--out", "OUT.jsonl"],
    "map": ["map", "bank", "--model", "absent", "--corpus", "absent", "--out", "OUT"],
    "map --csv": ["map", "bank", "--model", "absent", "--corpus", "absent", "--csv", "OUT"],
    "map --png": ["map", "bank", "--model", "absent", "--corpus", "absent", "--png", "OUT"],
    "attention": ["attention", "text", "--model", "absent", "--out", "OUT.html"],
    "attention --png": ["attention", "text", "--model", "absent", "--png", "OUT"],
    "embed": ["embed", "absent", "--model", "absent", "--out", "OUT.npy"],
    "score": ["score", "--pairs", "absent", "--model", "absent", "--out", "OUT.csv"],
    "fill": ["fill", "text", "--model", "absent", "--out", "OUT.csv"],
    "generate": ["generate", "text", "--model", "absent", "--out", "OUT.tsv"],
    "similar": ["similar", "a *bank*", "the *bank*", "--model", "absent", "--out", "OUT.parquet"],
    "senses tag": ["senses", "tag", "text", "--model", "absent", "--senses", "absent", "--out", "OUT.csv"],
    "evaluate --out": ["evaluate", "absent", "--data", "absent", "--out", "OUT.csv"],
    "isotropy show": ["isotropy", "show", "--model", "absent", "--corpus", "absent", "--plot", "OUT.png"],
    "patch": ["patch", "a [MASK]", "the [MASK]", "--answers", "a,b", "--model", "absent", "--html", "OUT.html"],
    "features show": ["features", "show", "absent", "--html", "OUT.html"],
    "probe": ["probe", "absent", "--model", "absent", "--out", "OUT.html"],
    "evaluate --plot": ["evaluate", "absent", "--data", "absent", "--plot", "OUT.png"],
    "evaluate --predictions": ["evaluate", "absent", "--data", "absent", "--predictions", "OUT"],
}
DIRECTORIES: dict[str, list[object]] = {
    "convert": ["convert", "absent", "OUT"],
    "importance": ["attention", "importance", "--model", "absent", "--corpus", "absent", "--prune=1:1", "--out", "OUT"],
    "finetune": ["finetune", "classify", "--model", "absent", "--train", "absent", "--out", "OUT"],
    "pretrain": ["pretrain", "bert", "--corpus", "absent", "--out", "OUT"],
    "tokenizer train": ["tokenizer", "train", "absent", "--out", "OUT"],
}  # fmt: skip


def given(command: list[object], out: Path) -> list[object]:
    return [str(one).replace("OUT", str(out)) if str(one).startswith("OUT") else one for one in command]


@pytest.mark.parametrize("command", FILES)
def test_71_a_file_that_exists_is_refused_before_any_work(command: str, larvatus: Larvatus, tmp_path: Path) -> None:
    """There is no such model or text: the output is looked at before them."""
    arguments = given(FILES[command], tmp_path / "mine")
    out = next(Path(str(one)) for one in arguments if str(one).startswith(str(tmp_path)))
    out.write_text("mine")
    code, said = larvatus(*arguments)
    assert (code, f"{out} is there already; choose another name, or replace it with --overwrite" in said) == (5, True)
    code, said = larvatus(*arguments, "--overwrite")
    assert (code in (4, 5), "absent" in said) == (True, True)
    assert out.read_text() == "mine"


@pytest.mark.parametrize("command", DIRECTORIES)
@pytest.mark.parametrize("name", ["README.md", "vocab.txt"])
def test_71_a_folder_with_notes_is_refused_before_any_work(
    command: str, name: str, larvatus: Larvatus, tmp_path: Path
) -> None:
    if (command, name) == ("tokenizer train", "README.md"):
        return  # it writes none
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    arguments = given(DIRECTORIES[command], tmp_path / "mine")
    code, said = larvatus(*arguments)
    assert (code, f"already holds {name}, which would be replaced" in said) == (5, True), said
    code, said = larvatus(*arguments, "--overwrite")
    assert (code in (4, 5), "absent" in said) == (True, True), said
    assert (tmp_path / "mine" / name).read_text() == "mine"


@pytest.fixture(scope="module")
def classifier(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = save_tiny(
        tmp_path_factory.mktemp("tuned") / "m", tiny_model(seed=5, objectives=(CLASSES,)), (CLASSES,)
    )
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("the river bank was wide .\nturn your homework in .\na deep river .\n")
    return path


def test_71_an_input_is_never_an_output(larvatus: Larvatus, classifier: Path, texts: Path, tmp_path: Path) -> None:
    before = texts.read_bytes()
    (tmp_path / "linked.txt").symlink_to(texts)
    os.link(texts, tmp_path / "hard.txt")
    (tmp_path / "folder").symlink_to(tmp_path)
    weights = classifier / "model.safetensors"
    for out in (texts, tmp_path / "linked.txt", tmp_path / "hard.txt", tmp_path / "folder" / "texts.txt", weights):
        code, said = larvatus("predict", classifier, "--file", texts, "--out", out, "--overwrite")
        assert (code, f"{out} is read by this command" in said) == (2, True), said
    assert texts.read_bytes() == before
    code, said = larvatus("convert", classifier, tmp_path / "folder" / ".." / classifier, "--overwrite")
    assert (code, "is what is read" in said) == (2, True), said


def test_71_inputs_in_folders_and_patterns_are_inputs(texts: Path, tmp_path: Path) -> None:
    for inputs in ([tmp_path], [f"{tmp_path}/*.txt"], [f"{tmp_path}/**"], ["-", "https://a.b/c", "a\0b", texts]):
        with pytest.raises(UsageError, match="is read by this command"):
            check_outputs(texts, overwrite=True, inputs=inputs)
    check_outputs(texts, overwrite=True, inputs=[tmp_path / "others", "texts.txt"])


def test_71_with_overwrite_it_is_replaced_whole(
    larvatus: Larvatus, classifier: Path, texts: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    other.write_text("another file")
    out.symlink_to(other)
    assert larvatus("predict", classifier, "--file", texts, "--out", out)[0] == 5
    assert larvatus("predict", classifier, "--file", texts, "--out", out, "--overwrite")[0] == 0
    assert not out.is_symlink()  # the link is replaced, not what it leads to
    assert other.read_text() == "another file"
    assert out.read_text().count("\n") == 3
    kept = out.read_bytes()
    texts.write_bytes(b"good\nbad \xff\n")
    assert larvatus("predict", classifier, "--file", texts, "--out", out, "--overwrite")[0] == 4
    assert out.read_bytes() == kept  # until the new one is whole


def test_71_what_cannot_be_an_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for name, said in (
        ("dangling", "is a link that leads nowhere"),
        ("loop", "is a link that leads nowhere"),
        ("folder", "is a directory; name a file"),
        ("absent/out", "absent is no directory to write out in"),
        ("folder/x\0", "is no name for a file here"),
        ("x" * 300, "is no name for a file here: File name too long"),
    ):
        with pytest.raises(LarvatusError, match=said):
            check_outputs(tmp_path / name, overwrite=True)
    assert not (tmp_path / "absent").exists()
    with pytest.raises(UsageError, match="named twice"):
        check_outputs(tmp_path / "a", tmp_path / "folder" / ".." / "a")
    check_outputs(None, tmp_path / "a", tmp_path / "b", Path("/dev/stdout"), Path("/dev/stdout"))


def test_71_devices_and_pipes_are_written_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    came: list[str] = []
    reader = threading.Thread(target=lambda: came.append(fifo.read_text()), daemon=True)
    reader.start()
    (tmp_path / "null").symlink_to("/dev/null")
    for path in (fifo, Path("/dev/stdout"), Path("/dev/fd/1"), Path("/dev/null"), tmp_path / "null"):
        assert is_stream(path)
        check_outputs(path)
        write_output(path, "a line\n")
    reader.join(timeout=WATCHDOG_S)
    assert came == ["a line\n"]
    assert capfd.readouterr().out == "a line\n" * 2
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert (tmp_path / "null").is_symlink()


def test_71_standard_output_in_a_file_keeps_what_was_printed(tmp_path: Path, classifier: Path) -> None:
    """`--out /dev/stdout > file` would begin at the first byte, were it opened again."""
    code = "import sys; from larvatus.core.outputs import write_output; from pathlib import Path\n"
    code += "print('before'); write_output(Path('/dev/stdout'), 'out\\n'); print('after')"
    with (tmp_path / "all").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "all").read_text() == "before\nout\nafter\n"


def test_71_scores_go_to_devices_too(larvatus: Larvatus, tiny_directory: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the river was wide\tthe river wide was\n")
    null = tmp_path / "null"
    null.symlink_to("/dev/null")  # a link: were it replaced, the machine would still have its own
    assert larvatus("score", "--pairs", pairs, "--model", tiny_directory, "--out", null)[0] == 0
    assert stat.S_ISCHR(null.stat().st_mode)
    out = tmp_path / "scores.jsonl"
    out.write_text("mine")
    assert larvatus("score", "--pairs", pairs, "--model", tiny_directory, "--out", out)[0] == 5
    assert larvatus("score", "--pairs", pairs, "--model", tiny_directory, "--out", out, "--overwrite")[0] == 0
    assert out.read_text().startswith('{"sentence_good"')


def test_71_vectors_of_an_older_run_are_not_taken_for_the_end_of_this_one(
    larvatus: Larvatus, tiny_directory: Path, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "v.npy"
    out.write_text("old")
    embed = ("embed", texts, "--model", tiny_directory, "--out", out)
    assert larvatus(*embed)[0] == 5
    assert larvatus(*embed, "--resume")[0] == 5
    assert out.read_text() == "old"
    assert larvatus(*embed, "--overwrite")[0] == 0
    assert out.read_bytes().startswith(b"\x93NUMPY")
    assert not (tmp_path / "v.npy.parts").exists()


def test_71_a_model_directory_keeps_what_is_not_the_models(
    larvatus: Larvatus, finetune: Any, tiny_directory: Path, tmp_path: Path
) -> None:
    """convert and finetune: an own folder, then an own model, then one of somebody else."""
    out = tmp_path / "model"
    out.mkdir()
    (out / "README.md").write_text("my notes")
    (out / "notes.txt").write_text("more of them")
    assert larvatus("convert", tiny_directory, out)[0] == 5
    assert (out / "README.md").read_text() == "my notes"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "notes.txt"]
    assert larvatus("convert", tiny_directory, out, "--overwrite")[0] == 0
    assert (out / "notes.txt").read_text() == "more of them"
    assert larvatus("convert", tiny_directory, out)[0] == 5
    train = classes(tmp_path / "train.jsonl")
    tune = ("classify", "--train", train, "--out", out, *QUICK)
    assert "start again with --overwrite" in finetune(*tune)[2]
    code, said = larvatus("finetune", *tune, "--model", out, "--overwrite")
    assert (code, "is what is read" in said) == (2, True)
    assert finetune(*tune, "--overwrite")[0] == 0
    assert finetune(*tune, "--overwrite")[0] == 0  # over a run of its own
    assert (out / "notes.txt").read_text() == "more of them"
    (out / "larvatus.json").unlink()
    code, _, said = finetune(*tune, "--overwrite")
    assert (code, "holds a model that Larvatus did not write" in said) == (5, True)


def test_71_pretraining_begins_anew_only_when_told(larvatus: Larvatus, tmp_path: Path) -> None:
    from tests.faults.conftest import SETTINGS

    lines = [" ".join(words).capitalize() + "." for words in sentences(600)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(lines[n : n + 10]) for n in range(0, 600, 10)))
    out = tmp_path / "run"
    settings = [*SETTINGS, "--set", "tokenizer.size=45", "--set", "batch=4", "--workers", 0, "--steps", 1]
    pretrain = ("pretrain", "bert", *settings, "--corpus", text, "--out", out)
    assert larvatus(*pretrain)[0] == 0
    (out / "notes.txt").write_text("mine")
    code, said = larvatus(*pretrain)
    assert (code, "start again with --overwrite" in said) == (5, True)
    assert larvatus(*pretrain, "--overwrite", "--resume")[0] == 2
    assert larvatus(*pretrain, "--overwrite")[0] == 0
    assert (out / "metrics.jsonl").read_text().count('"train"') == 1
    assert (out / "notes.txt").read_text() == "mine"


def test_71_a_demo_replaces_nothing_but_a_demo(
    larvatus: Larvatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of days has a metrics.jsonl too."""
    monkeypatch.setattr(demo.shutil, "rmtree", lambda out: pytest.fail(f"{out} is removed"))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    for path in (tmp_path / "run", tmp_path / "run" / "metrics.jsonl"):
        code, said = larvatus("demo", "--out", path, "--minutes", 0.01)
        assert (code, "holds something else than a demo" in said) == (2, True)
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    assert larvatus("demo", "--out", tmp_path / "linked", "--minutes", 0.01)[0] == 5


def test_71_a_directory_is_looked_at_by_names(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    check_directory(tmp_path, ["README.md"])
    check_directory(tmp_path / "absent", ["README.md"])
    (tmp_path / "README.md").symlink_to("absent")
    with pytest.raises(ArtefactError, match=r"already holds README.md"):
        check_directory(tmp_path, ["README.md"])
    with pytest.raises(ArtefactError, match="leads nowhere"):
        check_directory(tmp_path, ["README.md"], overwrite=True)
    with pytest.raises(UsageError, match="is read by this command"):
        check_directory(tmp_path, ["notes.txt"], overwrite=True, inputs=[tmp_path / "notes.txt"])


def test_71_a_file_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_output(tmp_path / "out") as aside:
        aside.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
