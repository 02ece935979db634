"""Latency against accuracy under disorder: punctuation from the source, generous slack, consistent slack.

Two kinds of disorder, each with two questions. Bounded: each row is delayed by up to 30 seconds; windows of 60 seconds
every 10, an average, of values that do not depend on time and of such as do. Block-sorted: a router dumps what it has
cached, each minute, in no order; a count, of minutes that end half-way between two dumps and of every 10 seconds. The
source that punctuates knows what it has sent.
`python experiments/disorder.py [FOLDER]` prints a table for each, and draws pictures of the first of both kinds into
the folder.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track

import panewise as pw
from panewise.local.stream import LocalStream

LENGTH, BOUND, BLOCK = 1_200, 30.0, 60.0
"""Seconds of stream; the longest delay; how often the router dumps its cache."""
RATE = 40
DUMP = 5.0
"""How long a dump takes."""


@dataclass(frozen=True)
class Arrivals:
    """Rows in the order of arrival: when each came, when it happened, its value; and what the source then knows."""

    came: np.ndarray
    at: np.ndarray
    value: np.ndarray
    step: float
    """Seconds of arrival in a micro-batch."""

    def steps(self) -> Iterator[tuple[float, pa.Table]]:
        """Micro-batches: the clock at their ends, and rows; a mark says that nothing up to its `t` will follow."""
        left = np.minimum.accumulate(self.at[::-1])[::-1]
        """The least of what is still to come, as of each row."""
        edges = np.searchsorted(self.came, np.arange(self.step, self.came[-1] + self.step, self.step))
        first = 0
        for number, last in enumerate(edges, 1):
            if last > first:
                done = np.nextafter(left[last], -np.inf) if last < len(left) else self.at.max()
                yield (
                    number * self.step,
                    pa.table(
                        {
                            "t": np.append(self.at[first:last], done),
                            "v": np.append(self.value[first:last], 0.0),
                            "mark": np.append(np.zeros(last - first, bool), True),
                        }
                    ),
                )
                first = last


def bounded(rng: np.random.Generator) -> Arrivals:
    """Delays of up to half a minute, most of them short."""
    at = np.sort(rng.random(LENGTH * RATE) * LENGTH)
    came = at + BOUND * rng.beta(1, 4, len(at))
    order = np.argsort(came, kind="stable")
    return Arrivals(came[order], at[order], rng.random(len(at)) * 100, 1.0)


def wave(rng: np.random.Generator) -> Arrivals:
    """The same delays, of values that rise and fall within four minutes."""
    same = bounded(rng)
    return replace(same, value=100 + 50 * np.sin(2 * np.pi * same.at / 240))


def blocks(rng: np.random.Generator) -> Arrivals:
    """All of a minute, from half past to half past, at its end, in no order."""
    at = np.sort(rng.random(LENGTH * RATE) * LENGTH)
    came = (np.floor(at / BLOCK + 0.5) + 0.5) * BLOCK + DUMP * rng.random(len(at))
    order = np.argsort(came, kind="stable")
    return Arrivals(came[order], at[order], np.ones(len(at)), DUMP / 20)


@dataclass(frozen=True)
class Outcome:
    """A point of the picture."""

    method: str
    slack: float | None
    latency: float
    """Seconds from the end of a window to its result, on average."""
    accuracy: float
    """Of the result of a window, on average, in percent."""
    late: int
    """Rows in no window."""
    partly: int
    """Rows in some of their windows only."""


def run(arrivals: Arrivals, plan: pw.Plan, call: str, method: str, slack: float | None) -> Outcome:
    """Feed it all, and compare with what a batch finds."""
    how = pw.in_band("mark") if slack is None else pw.slack(slack, late=method)
    stream = LocalStream(plan.at("t", how), {"x": call})
    found: dict[int, tuple[float, float]] = {}
    for clock, rows in arrivals.steps():
        if slack is not None:
            rows = rows.filter(pa.compute.invert(rows["mark"]))
        for row in stream.feed(rows).to_pylist():
            found[row["segment"]["id"]] = (clock - row["segment"]["end"], row["x"])
    whole = pw.segments_local(plan.at("t"), pa.table({"t": arrivals.at, "v": arrivals.value}), {"x": call})
    # windows that the end of the stream would close tell nothing of disorder
    known = {row["segment"]["id"]: row["x"] for row in whole.to_pylist() if row["segment"]["end"] < LENGTH - 4 * BLOCK}
    right = [max(0.0, 1 - abs(found[w][1] - x) / abs(x)) if w in found else 0.0 for w, x in known.items()]
    waits = [found[w][0] for w in known if w in found]
    latency, accuracy = float(np.mean(waits)), 100 * float(np.mean(right))
    return Outcome(method, slack, latency, accuracy, stream.counts["late"], stream.counts["partly_late"])


def outcomes(arrivals: Arrivals, plan: pw.Plan, call: str, slacks: list[float]) -> list[Outcome]:
    """One point for punctuation, one for each slack and kind of it."""
    cases = [("punctuation", None)] + [(late, slack) for late in ("generous", "consistent") for slack in slacks]
    shown = track(cases, call, console=Console(stderr=True), transient=True)
    return [run(arrivals, plan, call, method, slack) for method, slack in shown]


def told(title: str, found: list[Outcome]) -> None:
    """As a table."""
    columns = ("", "slack, s", "latency, s", "accuracy, %", "late rows", "partly late")
    print(f"{title}\n\n| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
    for each in found:
        slack = "" if each.slack is None else f"{each.slack:g}"
        figures = f"{each.latency:.1f} | {each.accuracy:.2f} | {each.late:,} | {each.partly:,}"
        print(f"| {each.method} | {slack} | {figures} |")
    print()


def labels(some: list[Outcome]) -> list[tuple[str, float, float]]:
    """The slack of each point, or of those that lie on one another."""
    groups: list[list[Outcome]] = []
    for each in some:
        if groups and math.dist((groups[-1][0].latency, groups[-1][0].accuracy), (each.latency, each.accuracy)) < 1.5:
            groups[-1].append(each)
        else:
            groups.append([each])
    told = []
    for group in groups:
        name = f"{group[0].slack:g} s" if len(group) == 1 else f"{group[0].slack:g} to {group[-1].slack:g} s"
        told.append((name, group[0].latency, group[0].accuracy))
    return told


def draw(path: Path, title: str, found: list[Outcome]) -> None:
    """Latency against accuracy."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for method, mark in (("generous", "o"), ("consistent", "s")):
        some = [each for each in found if each.method == method]
        axes.plot([e.latency for e in some], [e.accuracy for e in some], marker=mark, label=f"{method} slack")
    for name, x, y in labels([each for each in found if each.method == "generous"]):
        axes.annotate(name, (x, y), (6, -12), textcoords="offset points")
    best = next(each for each in found if each.slack is None)
    axes.plot(best.latency, best.accuracy, "*", markersize=14, color="black", label="punctuation of the source")
    axes.set(xlabel="latency, s", ylabel="accuracy, %", title=title)
    axes.margins(x=0.2)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


@dataclass(frozen=True)
class Kind:
    """Rows, and what is asked of them under several slacks."""

    title: str
    made: Callable[[np.random.Generator], Arrivals]
    plan: pw.Plan
    call: str
    slacks: tuple[float, ...]
    picture: str | None = None


SHORT = (0.0, 2.0, 5.0, 10.0, 20.0, 30.0)
LONG = (0.0, 10.0, 20.0, 25.0, 28.0, 29.5, 30.5, 32.0, 40.0, 60.0, 80.0)
MINUTES, TENS, EVERY_TEN = pw.tumbling_windows(60), pw.tumbling_windows(10), pw.sliding_windows(60, 10)
KINDS = (
    Kind("Bounded disorder: average over 60 s, every 10 s", bounded, EVERY_TEN, "avg(v)", SHORT, "disorder-bounded"),
    Kind("Bounded disorder: the same of values that follow a sine", wave, EVERY_TEN, "avg(v)", SHORT),
    Kind(
        "Block-sorted disorder: count of every minute, dumped at half past",
        blocks, MINUTES, "count(*)", LONG, "disorder-blocks",
    ),
    Kind("Block-sorted disorder: count of every 10 s", blocks, TENS, "count(*)", (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)),
)  # fmt: skip


def main() -> int:
    """All tables, both pictures."""
    for kind in KINDS:
        found = outcomes(kind.made(np.random.default_rng(3)), kind.plan, kind.call, [*kind.slacks])
        told(kind.title, found)
        if len(sys.argv) > 1 and kind.picture is not None:
            draw(Path(sys.argv[1]) / f"{kind.picture}.png", kind.title, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
