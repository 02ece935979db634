"""The Spark session of a command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from panewise.cli.errors import EXPECTED, sentence
from panewise.cli.steps import step
from panewise.errors import JobError
from panewise.spark.session import session

__all__ = ["engine", "unresolved"]

_STDERR = 2
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_UNRESOLVED = re.compile(r"unresolved dependency: ([^\s#]+)#([^\s;]+);([^\s:,\]]+)")


@contextmanager
def engine(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session that is running already, as it is; or one of our own, which ends with the command.

    What our own one logs goes to a file, which stays only where an error does not speak for itself.
    """
    running = SparkSession.getActiveSession()
    with _unlogged(), ExitStack() as own:
        yield running or own.enter_context(_own(master, settings))


@contextmanager
def _unlogged() -> Iterator[None]:
    """PySpark does not log the errors that it raises: we tell them ourselves."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def _own(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    needed = False
    with NamedTemporaryFile("w", prefix="panewise-spark-", suffix=".log", delete=False) as log:
        try:
            with step("starting Spark"), _children_write_to(log.fileno()):
                spark = session(master, **settings)
            try:
                yield spark
            finally:
                spark.stop()
        except EXPECTED as error:
            missing = unresolved(Path(log.name).read_text(encoding="utf-8", errors="replace"))
            if missing:
                raise JobError(missing) from None
            needed = not sentence(error)[1]
            if needed:
                error.add_note(f"Spark's own log is in {log.name}.")
            raise
        finally:
            if not needed:
                Path(log.name).unlink()


def unresolved(log: str) -> str | None:
    """What to say where Spark could not fetch a package that it was to have, by its log."""
    packages = ", ".join(dict.fromkeys(":".join(found) for found in _UNRESOLVED.findall(log)))
    if not packages:
        return None
    return (
        f"`spark.jars.packages` ({packages}): Spark did not start, because no repository that it knows gave it that. "
        "Name another one by --conf spark.jars.repositories=https://..., another version by --conf "
        "spark.jars.packages=..., or jars that you have by --conf spark.jars=a.jar,b.jar."
    )


@contextmanager
def _children_write_to(log: int) -> Iterator[None]:
    """Processes that start meanwhile, the JVM that is, have their stderr there; ours stays where it is."""
    given = sys.stderr
    given.flush()
    kept = os.dup(_STDERR)
    with os.fdopen(kept, "w", encoding=given.encoding) as stand_in:
        os.dup2(log, _STDERR)
        sys.stderr = stand_in
        try:
            yield
        finally:
            sys.stderr = given
            os.dup2(kept, _STDERR)
