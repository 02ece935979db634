"""`panewise prod`: ask a query that runs elsewhere for an early answer, through its control folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from uuid import uuid4

from panewise.cli.engine import engine
from panewise.cli.run import local
from panewise.errors import InputError, JobError, did_you_mean
from panewise.jobs import read_job
from panewise.spark.control import Control, check_prod, command
from panewise.spark.watch import at_of

__all__ = ["prod"]

Until = datetime | date | int | float


def prod(query: str, until: str | None, keys: Sequence[str], master: str, settings: Mapping[str, str]) -> str:
    """Write the request; `query` is the job file, or the control folder. Gives the folder."""
    folder, known = _folder(query)
    named = _named(keys, known)
    wanted = None if until is None else _until(until)
    place = local(folder)
    if place is None:
        with engine(master, settings) as spark:
            Control(spark, folder).prod(wanted, **named)
        return folder
    if not place.is_dir():
        raise InputError(
            f"There is no control folder {folder!r}: the query has not been started yet. Start it first, such as with "
            "`panewise run`."
        )
    told = command("prod", wanted, named)
    check_prod(folder, told["until"], named)
    _write(place, told)
    return folder


def _folder(query: str) -> tuple[str, tuple[str, ...] | None]:
    """The control folder, and the keys of the plan, where they are known."""
    if not query.endswith(".toml"):
        return query, None
    job = read_job(query)
    if job.stream is None:
        raise JobError(f"The job {query!r} is no stream, and has nothing open to ask for. Give one with [stream].")
    if job.stream.prods is None:
        raise JobError(f"The job {query!r} answers no prods. Add prods = true to [stream], and start it again.")
    keys = job.plan.keys
    return job.stream.control or f"{job.stream.checkpoint.rstrip('/')}-control", keys


def _named(keys: Sequence[str], known: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in keys:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"`--key` ({text!r}) must name a key column and a value. Write it as sensor=7.")
        if known is not None and name not in known:
            raise InputError(f"`--key` ({text!r}): {name!r} is no key of the plan. {did_you_mean(name, known)}")
        if name in found:
            raise InputError(f"`--key` ({text!r}): {name!r} is named twice. Ask once for each value.")
        found[name] = value
    return found


def _until(text: str) -> Until:
    """A value of `at` from its text.

    >>> _until("50"), _until("0.5"), _until("2024-01-01"), _until("2024-01-01T08:00:00")
    (50, 0.5, datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 8, 0))
    """
    found = at_of(text)
    if not isinstance(found, str):
        return found
    raise InputError(
        f"`--until` ({text!r}) must be a number, a date or a time, as `at` is. "
        "Write it as 50, 2024-01-01 or 2024-01-01T08:00:00+00:00."
    )


def _write(folder: Path, content: Mapping[str, object]) -> None:
    """One file, which comes into being whole; Spark reads none whose name begins with a point."""
    name = f"prod-{uuid4().hex}.json"
    hidden = folder / f".{name}"
    hidden.write_text(json.dumps(content), encoding="utf-8")
    os.replace(hidden, folder / name)
