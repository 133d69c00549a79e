"""Runs: what training folders write is read as it grows, and nothing beside them."""

from __future__ import annotations

import json

import pytest

from larvatus.interfaces.studio.run_metrics import NoSuchRun, find_runs, read_records, run_named


def line(step, **values):
    return json.dumps({"kind": "train", "step": step, "time": 1.5, **values}) + "\n"


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "deep" / "law"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(line(1, loss=9.5) + line(2, loss=9.25))
    return folder


def grow(run, text):
    with (run / "metrics.jsonl").open("a") as file:
        file.write(text)


def test_only_what_is_new_is_read_and_a_half_written_line_waits(run):
    first = read_records(run)
    assert [record["loss"] for record in first.records] == [9.5, 9.25]
    whole = line(3, loss=9.0)
    grow(run, whole[:20])
    second = read_records(run, after=first.after, stamp=first.stamp)
    assert (second.records, second.broken, second.after) == ([], 0, first.after)
    grow(run, whole[20:])
    third = read_records(run, after=second.after, stamp=second.stamp)
    assert [record["step"] for record in third.records] == [3]
    assert not third.more


def test_pieces_put_together_are_the_whole_file(run):
    grow(run, "".join(line(step, loss=1 / step) for step in range(3, 400)))
    whole = read_records(run).records
    pieces, after, stamp, more = [], 0, "", True
    while more:
        piece = read_records(run, after=after, stamp=stamp, most=1000)
        assert piece.after > after
        pieces, after, stamp, more = pieces + piece.records, piece.after, piece.stamp, piece.more
    assert pieces == whole
    assert len(whole) == 399


def test_a_run_begun_anew_is_read_from_its_beginning(run):
    first = read_records(run)
    (run / "metrics.jsonl").write_text(line(1, loss=3.0))
    shorter = read_records(run, after=first.after, stamp=first.stamp)
    assert shorter.restarted
    assert [record["loss"] for record in shorter.records] == [3.0]
    (run / "new").write_text("".join(line(step, loss=2.0) for step in range(1, 9)))
    (run / "new").rename(run / "metrics.jsonl")
    replaced = read_records(run, after=shorter.after, stamp=shorter.stamp)
    assert replaced.restarted
    assert len(replaced.records) == 8


def test_broken_lines_are_counted_and_what_is_no_number_is_none(run):
    grow(run, "no json\n[1]\n" + '{"step": 3, "loss": NaN, "flag": true, "each": [1], "said": "<b>leapt</b>"}\n')
    records = read_records(run)
    assert records.broken == 2
    assert records.records[-1] == {"step": 3, "loss": None, "said": "<b>leapt</b>"}


def test_runs_are_known_by_the_list_alone_and_links_are_not_followed(run, tmp_path):
    runs = tmp_path / "runs"
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "metrics.jsonl").write_text(line(1, loss=1.0))
    (runs / "link").symlink_to(tmp_path / "secret")
    (runs / "half").mkdir()
    (runs / "half" / "metrics.jsonl").symlink_to(tmp_path / "secret" / "metrics.jsonl")
    assert list(find_runs(runs).runs) == ["deep/law"]
    for name in ("../secret", "link", "half", "/etc", ""):
        with pytest.raises(NoSuchRun, match="there is no run"):
            run_named(runs, name)
    assert find_runs(tmp_path / "missing").runs == {}


def test_the_page_lists_runs_and_reads_on(studio):
    empty = studio.get("/runs").json()
    assert (empty["folder"], empty["exists"], empty["runs"], empty["whole"]) == ("runs", False, [], True)
    folder = studio.runs / "law"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(line(1, loss=9.5) + '{"kind": "train", "st')
    listed = studio.get("/runs").json()["runs"]
    assert [(each["name"], each["step"], each["live"]) for each in listed] == [("law", 1, True)]
    first = studio.get("/runs/records", name="law").json()
    grow(folder, 'ep": 2, "loss": 8}\n')
    then = studio.get("/runs/records", name="law", after=first["after"], stamp=first["stamp"]).json()
    assert [record["loss"] for record in first["records"] + then["records"]] == [9.5, 8]
    assert studio.get("/runs/records", name="../law").status_code == 404
    assert studio.get("/runs/records", name="law", after="-1").status_code == 422
