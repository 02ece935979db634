"""The `panewise` command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from panewise.cli.engine import engine
from panewise.cli.errors import EXPECTED, sentence
from panewise.cli.explain import explain as explain_job
from panewise.cli.run import check
from panewise.cli.run import run as run_job
from panewise.cli.show import screen
from panewise.errors import JobError
from panewise.jobs import Job, read_job
from panewise.spec.job import StreamOptions

__all__ = ["app"]

_INTERRUPTED = 130  # what a shell says of a command that Ctrl-C has ended

app = typer.Typer(
    help="Finds the stretches of a data stream that matter, and computes over them, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

experiment = typer.Typer(help="Run published experiments again: their numbers beside ours, and pictures.")
app.add_typer(experiment, name="experiment", no_args_is_help=True)

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="The job file, in TOML.")]
Master = Annotated[str, typer.Option(help="Where Spark runs.")]
Settings = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. Repeatable.")]


@contextmanager
def _told() -> Iterator[None]:
    """Errors that a user can do something about, as one red line."""
    try:
        yield
    except EXPECTED as error:
        console = Console(stderr=True, highlight=False, markup=False)
        console.print(sentence(error)[0], style="red", soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            console.print(note, soft_wrap=True)
        raise typer.Exit(2) from None


def _settings(given: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or ()]
    for key, equals, value in pairs:
        if not key.startswith("spark.") or not equals:
            raise typer.BadParameter(f"{key + equals + value!r} is no Spark setting. Write spark.some.key=value.")
    return {key: value for key, _, value in pairs}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("panewise"))
        raise typer.Exit


@app.callback()
def panewise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the stretches of a data stream that matter."""


@app.command()
def run(
    job: JobFile,
    live: Annotated[bool, typer.Option("--live", help="Show how far a stream is while it runs.")] = False,
    master: Master = "local[*]",
    conf: Settings = None,
) -> None:
    """Run a job: read its source, find the segments, write them to its sink.

    A stream runs to the end of what is there (trigger "once"), or until Ctrl-C.
    """
    settings = _settings(conf)
    with _told():
        wanted = read_job(job)
        if wanted.stream is not None:
            _run_stream(wanted, wanted.stream, live, master, settings)
            return
        if live:
            none = "[source] is none" if wanted.fill is None else "neither [source] nor [fill] is one"
            raise JobError(f"`--live` watches a stream, and {none}. Leave it out, or add stream = true.")
        check(wanted)
        with engine(master, settings) as spark:
            outcome = run_job(spark, wanted)
        screen().print(outcome.summary(wanted))


def _run_stream(job: Job, options: StreamOptions, live: bool, master: str, settings: dict[str, str]) -> None:
    from panewise.cli import stream

    stream.check(job, options)
    with engine(master, stream.settings(job, options, master, settings)) as spark:
        outcome = stream.run(spark, job, options, live)
    screen().print(outcome.summary(job))
    if outcome.stopped and options.trigger == "once":
        raise typer.Exit(_INTERRUPTED)


@app.command()
def prod(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Its job file, or its control folder.")],
    until: Annotated[
        str | None, typer.Option(metavar="AT", help="Ask for what ends at or before this. Default: all that is open.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A key to ask for. Repeatable. Default: all keys.")
    ] = None,
    master: Master = "local[*]",
    conf: Settings = None,
) -> None:
    """Ask a running stream for an early answer about what is still open.

    It comes among its results, with the timing "early"; the exact one comes later.
    """
    from panewise.cli.prod import prod as ask

    settings = _settings(conf)
    with _told():
        folder = ask(query, until, key or (), master, settings)
        screen().print(f"asked, through {folder}; the answer comes among the results of the query, as early")


@app.command()
def explain(job: JobFile) -> None:
    """Say in words what a job will find, and what it needs."""
    with _told():
        print(explain_job(read_job(job)))


@app.command()
def plot(
    job: JobFile,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A key to draw; of several columns, with commas. Repeatable. Default: as in the job, or the top 3.",
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="What to draw. Default: as in the job, or the first number in the plan."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .png, .svg or .pdf. Default: as in the job, or its name with .png."),
    ] = None,
    master: Master = "local[*]",
    conf: Settings = None,
) -> None:
    """Draw a value over time with the job's segments, for some keys."""
    from panewise.cli.plot import plot as plot_job

    settings = _settings(conf)
    with _told():
        wanted = read_job(job)
        path = out or (Path(wanted.plot.path) if wanted.plot else job.with_suffix(".png"))
        with engine(master, settings) as spark:
            plot_job(spark, wanted, key or (), value, path)
        screen().print(f"drawn to {path}")


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="How many reports to generate.")] = 1_000_000,
    routers: Annotated[int, typer.Option(min=1, help="Of how many routers.")] = 1_000,
    out: Annotated[Path, typer.Option(help="The folder for data, job and picture.")] = Path("out/demo"),
    master: Master = "local[*]",
) -> None:
    """Generate reports of routers that lose packets, find every episode of loss, and prove that they are right."""
    from panewise.cli.demo import demo as run_demo

    with _told():
        right = run_demo(rows, routers, out, master)
    if not right:
        raise typer.Exit(1)


@experiment.command()
def prodding(
    out: Annotated[Path, typer.Option(help="The folder for tables and pictures.")] = Path("out/prodding"),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter streams: the shapes, and rougher numbers.")] = False,
) -> None:
    """Early answers in a simulated delivery: how near they are, and how much sooner they come."""
    from panewise.cli.experiment import prodding as run_prodding

    with _told():
        run_prodding(out, quick)
