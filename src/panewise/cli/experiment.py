"""Published experiments, run again: the table on the screen, pictures in a folder."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from panewise.cli.show import screen
from panewise.cli.steps import counted
from panewise.experiments import prodding as prodding_experiment
from panewise.experiments.prodding.report import HEADS, noted

__all__ = ["prodding"]


def prodding(out: Path, quick: bool) -> None:
    """Run the experiment on prods, and show what came of it."""
    with counted("asking early") as tell:
        lines = prodding_experiment.run(out, quick, tell)
    cells, notes = noted(lines)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for head in HEADS:
        table.add_column(head, justify="right" if head in ("published", "ours", "note") else "left")
    before: tuple[str, ...] = ()
    for row in cells:
        # what is as in the line above goes without saying
        shown = [cell if row[: i + 1] != before[: i + 1] else "" for i, cell in enumerate(row[:2])]
        table.add_row(*shown, *row[2:])
        before = row[:2]
    say = screen().print
    say(table)
    say()
    for number, note in enumerate(notes, 1):
        say(f"{number}. {note}")
    say()
    say(f"table and pictures: {out.as_posix()}")
