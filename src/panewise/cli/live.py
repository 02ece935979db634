"""A running stream on the screen: a table that lives on stderr, or a line for each micro-batch where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from panewise.cli.steps import step
from panewise.spark.watch import SourceProgress, StreamProgress, brief, many, shown, size

if TYPE_CHECKING:
    from panewise.jobs import Job

__all__ = ["late", "line", "looked_at", "table"]

_SOURCES = 10
_A_SECOND = 4

Told = Callable[[str, StreamProgress], None]
"""Takes a query's id and how far it is."""


@contextmanager
def looked_at(job: Job, live: bool, text: str) -> Iterator[Told]:
    """Show how far a stream is, for as long as it runs; what you get takes the news."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not live:
        with step(text):
            yield lambda *_: None
    elif not console.is_terminal:
        yield lambda _, seen: console.print(line(seen, job.plan.ordered_by), soft_wrap=True)
    else:
        latest = StreamProgress()

        def told(_: str, seen: StreamProgress) -> None:
            nonlocal latest
            latest = seen

        with Live(
            get_renderable=lambda: table(latest, job.plan.ordered_by),
            console=console,
            refresh_per_second=_A_SECOND,
            # segments on the same screen go above the table; those in a pipe stay there
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        ):
            yield told


def late(seen: StreamProgress, at: str) -> str:
    """Rows that are in no segment, or not in all that they belong to, by reason, in words.

    >>> late(StreamProgress(late={"late": 10, "after_idle": 0, "null_at": 2}), "rpt_time")
    '10 late, 2 without rpt_time'
    """
    words = {"late": "late", "after_idle": "late after idling", "null_at": f"without {at}"}
    words |= {"before_origin": "before the first window", "partly_late": "late for some of their windows"}
    return ", ".join(f"{count:,} {words[reason]}" for reason, count in seen.late.items() if count) or "none late"


def line(seen: StreamProgress, at: str) -> str:
    """A micro-batch in one line."""
    parts = [
        f"micro-batch {seen.batch}: {many(seen.batch_rows, 'row')} in {seen.batch_seconds:.1f} s",
        f"{many(seen.closed, 'segment')} closed, {seen.open:,} open",
        late(seen, at),
        f"progress {seen.reached}",
        *([] if seen.filling is None else [str(seen.filling)]),
        *([] if seen.prods is None else [f"prods: {seen.prods.asked}", f"accuracy {seen.prods.accuracies}"]),
    ]
    return "; ".join(parts)


def table(seen: StreamProgress, at: str) -> Group | str:
    """All that is known, as a table."""
    if seen.batch is None:
        return "waiting for the first micro-batch ..."
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row("micro-batch", f"{seen.batch:,} took {seen.batch_seconds:.1f} s")
    facts.add_row("rows", f"{seen.rows:,}, {seen.rows_per_second:,.0f} a second in this one")
    parts = f", {many(seen.parts, 'part')} sent" if seen.parts else ""
    facts.add_row("segments", f"{seen.closed:,} closed, {seen.open:,} open{parts}")
    facts.add_row("late rows", late(seen, at))
    facts.add_row("progress", seen.reached)
    if seen.filling is not None:
        facts.add_row("filling", str(seen.filling).removeprefix("filling: "))
    if seen.prods is not None:
        facts.add_row("prods", seen.prods.asked)
        facts.add_row("accuracy", seen.prods.accuracies)
        facts.add_row("early answers", seen.prods.earliness)
        if seen.prods.aggressiveness is not None:
            facts.add_row("aggressiveness", f"{seen.prods.aggressiveness:.1%} of the slide")
    facts.add_row("state", f"{many(seen.keys, 'key')}, {many(seen.waiting, 'row')} waiting, {size(seen.state_bytes)}")
    if not seen.sources:
        return Group(facts)
    sources = Table("source", "progress", "lag", box=None, pad_edge=False, header_style="bold")
    behind = sorted(seen.sources, key=lambda one: (one.idle, one.at))
    for one in behind[:_SOURCES]:
        sources.add_row(one.source, shown(one.at), _lag(one))
    left = len(behind) - _SOURCES
    return Group(facts, "", sources, *([f"... and {left:,} more, further ahead or idle"] if left > 0 else []))


def _lag(one: SourceProgress) -> str:
    return "idle" if one.idle else "" if one.lag is None else brief(one.lag)
