"""What a command is doing, as a bar on stderr that is gone when it is done; nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["counted", "step", "watched"]

_EVERY = 0.2  # seconds between two looks at Spark


def _bar(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )


@contextmanager
def step(text: str) -> Iterator[None]:
    """Something that takes its time."""
    with _bar() as bar:
        bar.add_task(text, total=None)
        yield


@contextmanager
def counted(text: str) -> Iterator[Callable[[int, int], None]]:
    """Something that tells how far it is: call what you get with (done, all)."""
    with _bar(BarColumn()) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def watched(spark: SparkSession, text: str) -> Iterator[None]:
    """A Spark action: its tasks are counted where the driver is at hand, and not through Connect."""
    try:
        context = spark.sparkContext
    except PySparkException:
        with step(text):
            yield
        return
    with _bar(BarColumn(), MofNCompleteColumn(), TextColumn("tasks")) as bar:
        task = bar.add_task(text, total=None)
        done = Event()
        watcher = Thread(target=_watch, args=(context, bar, task, done), daemon=True)
        if not bar.disable:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if watcher.is_alive():
                watcher.join()


def _watch(context: SparkContext, bar: Progress, task: TaskID, done: Event) -> None:
    tracker = context.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not done.wait(_EVERY):
        active = set(tracker.getActiveStageIds())
        for stage in active:
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
        for stage in stages.keys() - active:
            stages[stage] = (stages[stage][1], stages[stage][1])
        if stages:
            bar.update(task, completed=sum(n for n, _ in stages.values()), total=sum(n for _, n in stages.values()))
