"""The lines of an experiment as a table: on the screen, in Markdown, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from panewise.experiments.prodding.part import Line

__all__ = ["HEADS", "as_csv", "as_markdown", "noted"]

HEADS = ("experiment", "setting", "measure", "published", "ours", "note")


def noted(lines: Sequence[Line]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The cells of each line, with the number of its note, and the notes.

    >>> noted([Line("a", "s", "m", "", (1.0,), "s", "why"), Line("a", "s", "n", "2 s", (2.0,), "s")])
    ([('a', 's', 'm', '', '1.00 s', '1'), ('a', 's', 'n', '2 s', '2.00 s', '')], ['why'])
    """
    notes = list(dict.fromkeys(line.note for line in lines if line.note))
    return [
        (
            line.experiment,
            line.setting,
            line.measure,
            line.published,
            line.shown,
            str(notes.index(line.note) + 1) if line.note else "",
        )
        for line in lines
    ], notes


def as_csv(lines: Sequence[Line]) -> str:
    """One row for each line, notes written out."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    for line in lines:
        writer.writerow((line.experiment, line.setting, line.measure, line.published, line.shown, line.note))
    return text.getvalue()


def as_markdown(lines: Sequence[Line]) -> str:
    """A table, and the notes below it."""
    cells, notes = noted(lines)
    rows = ["| " + " | ".join(row) + " |" for row in [HEADS, *cells]]
    rows.insert(1, "|---|---|---|---:|---:|---:|")
    return "\n".join([*rows, "", *(f"{i}. {note}" for i, note in enumerate(notes, 1)), ""])
