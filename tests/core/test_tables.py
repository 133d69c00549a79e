"""One record for tables: text, Markdown, reports of lines and tables."""

from __future__ import annotations

from larvatus.core.tables import Cell, Column, Table, markdown_table, render_text


def test_columns_are_aligned_and_notes_follow() -> None:
    table = Table(("repeats", "bits"), (("1", "2.1"), ("16", "13.3")), title="exposure", left=0, notes=("few",))
    assert str(table) == "exposure\nrepeats  bits\n      1   2.1\n     16  13.3\nnote: few"
    mixed = Table([Column("name", right=False), "n", Column("how", right=False)], [["a", "10", "x"], ["bb", "1", ""]])
    assert mixed.lines() == ["name   n  how", "a     10  x", "bb     1"]


def test_markdown_escapes_cells_marks_the_best_and_shows_indentation() -> None:
    table = Table(("", "score"), [["  a|b", Cell("1*", "bold green")], [Cell("c", "dim"), ""]])
    assert table.markdown().splitlines() == ["| | score |", "| --- | --- |", r"| … a\|b | **1\*** |", "| c |  |"]
    assert markdown_table(["a"], []) == "| a |\n| --- |"


def test_a_report_mixes_lines_and_tables() -> None:
    table = Table(("metric", "score"), [("accuracy", "0.5")], blank_before=True)
    assert render_text(["on 2 examples", table]) == "on 2 examples\n\nmetric    score\naccuracy    0.5"
