"""Prodding: how near early answers are, how much sooner they come, and that final ones come when they would have.

The published experiments on prods, again, in a simulated delivery. Each part is a function that gives lines of the
table, and pictures; a new one is added to `PARTS`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from panewise.experiments.prodding.aggressiveness import by_aggressiveness
from panewise.experiments.prodding.aside import set_aside
from panewise.experiments.prodding.autopilot import on_autopilot
from panewise.experiments.prodding.bursts import in_bursts
from panewise.experiments.prodding.lengths import by_length
from panewise.experiments.prodding.part import Line, Part, Tell
from panewise.experiments.prodding.report import as_csv, as_markdown
from panewise.experiments.prodding.traffic import delayed_traffic
from panewise.plots.style import STYLE

__all__ = ["PARTS", "run"]

PARTS: tuple[Part, ...] = (delayed_traffic, by_length, by_aggressiveness, in_bursts, set_aside, on_autopilot)
_FINE = 1_000
"""In how many steps it is told how far a part is."""


def run(out: Path, quick: bool, tell: Tell) -> list[Line]:
    """Run all parts, and write tables and pictures into a folder; the lines of the table."""
    out.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    with mpl.rc_context(STYLE):
        for number, part in enumerate(PARTS):
            found = part(quick, _within(number, tell))
            lines += found.lines
            for name, figure in found.pictures.items():
                figure.savefig(out / f"{name}.png")
    (out / "results.csv").write_text(as_csv(lines), encoding="utf-8")
    (out / "results.md").write_text(as_markdown(lines), encoding="utf-8")
    return lines


def _within(number: int, tell: Tell) -> Tell:
    """How far all is, by how far a part is."""
    return lambda done, of: tell(_FINE * number + _FINE * done // of, _FINE * len(PARTS))
