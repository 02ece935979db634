"""Control: what a running query is told, through a folder that it reads beside its rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from panewise.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Control", "check_prod", "command", "describe", "prod", "remember"]

_TYPES = {int: "bigint", float: "double", str: "string"}
_KEY = "key map<string, string>"
_LONG = 1 << 63
_KNOWN: dict[str, str] = {}
"""The control folders that queries of this process read, as they were given."""
_DESCRIBED = "_panewise.json"
"""In a control folder: what the queries that read it can be asked for; Spark reads no file of such a name."""
_MANY = 16
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _only(form: re.Pattern[str], read: Callable[[str], object]) -> Callable[[str], object]:
    """What reads texts that begin, or are, in a form: Python reads more than Spark does."""

    def reads(text: str) -> object:
        if not form.match(text):
            raise ValueError(text)
        return read(text)

    return reads


_READERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _only(re.compile(r"[+-]?[0-9]+$"), int)),
    **dict.fromkeys(("float", "double"), _only(re.compile(r"[^_]*$"), float)),
    "decimal": _only(re.compile(r"[-+0-9.eE]+$"), float),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _only(_DAY, datetime.fromisoformat)),
    "date": _only(_DAY, lambda text: datetime.fromisoformat(text).date()),
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
}
"""What reads the text of a value, by the type that it must be."""
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_TIMES = ("timestamp", "timestamp_ntz", "date")


class Control:
    """A folder of commands to the queries whose `segments(..., control=folder)` names it; made if it is not there.

    `Control(spark, "out/control").finish()`

    Each command is a small JSON file that Spark writes, so the folder may be wherever Spark can write. It acts at the
    end of the micro-batch that reads it. A query with a new checkpoint reads the old commands too: give it a new
    folder, or `clear` this one before.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self.folder = spark, folder
        self._make("append")

    def punctuate(self, until: datetime | date | int | float) -> None:
        """Promise that no more rows with `at` <= until come.

        A datetime with a time zone is that instant. One without is a time on the wall, as in Spark SQL: itself where
        `at` is a timestamp_ntz, and in the session's time zone where it is a timestamp.
        """
        self._write("punctuation", _written(until, ", or call finish() to promise everything"))

    def finish(self) -> None:
        """Promise that no more rows come at all: everything is closed, and rows that come nevertheless are late."""
        self._write("final", None)

    def prod(self, until: datetime | date | int | float | None = None, **key: Any) -> None:
        """Ask for an answer now: about all that is open and ends at or before `until`, of these keys.

        `control.prod()` asks for everything, `control.prod(until=50, sensor=7)` for what ends up to 50 of one sensor.
        """
        told = command("prod", until, key)
        check_prod(self.folder, told["until"], told["key"] or {})
        self._write("prod", told["until"], told["key"])

    def clear(self) -> None:
        """Forget every command. Only for a folder that no checkpoint knows any more: a query wants its files back."""
        self._make("overwrite")

    def _make(self, mode: str) -> None:
        # partitioned, and without a row, so that the folder comes into being and no file in it
        empty = self._spark.createDataFrame([], f"kind string, until string, {_KEY}")
        empty.write.partitionBy("kind").mode(mode).json(self.folder)

    def _write(self, kind: str, until: str | int | float | None, key: Mapping[str, str] | None = None) -> None:
        schema = f"kind string, until {_TYPES[type('' if until is None else until)]}, {_KEY}"
        # one file, which Spark writes elsewhere and then moves here: nobody reads the half of it
        self._spark.createDataFrame([(kind, until, key)], schema).coalesce(1).write.mode("append").json(self.folder)


def describe(folder: str, keys: Mapping[str, str], at: str, prods: bool) -> None:
    """Write down what a query that reads a folder can be asked for: the types of its keys, and of `at`."""
    place = _local(folder)
    if place is None:
        return
    known, mine = _described(place), {"keys": dict(keys), "at": at, "prods": prods}
    if mine not in known:
        with suppress(OSError):
            (place / _DESCRIBED).write_text(json.dumps([*known, mine][-_MANY:]), encoding="utf-8")


def _local(folder: str) -> Path | None:
    parts = urlsplit(folder)
    return Path(parts.path) if parts.scheme in ("", "file") else None


def _described(place: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads((place / _DESCRIBED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found


def check_prod(folder: str, until: object, key: Mapping[str, object]) -> None:
    """Refuse a prod that none of the queries that are known to read a folder would understand."""
    place = _local(folder)
    known = [] if place is None else _described(place)
    why = [_refused(each, until, key) for each in known]
    if why and all(why):
        raise InputError(why[-1])


def _refused(query: Mapping[str, Any], until: object, key: Mapping[str, object]) -> str:
    """Why a query would not understand a prod."""
    if not query["prods"]:
        return "The query that reads the folder answers no prods. Give it `prods`, and start it again."
    for name, value in key.items():
        if name not in query["keys"]:
            return f"`{name}` ({value!r}) is no key of the plan. {did_you_mean(name, query['keys'])}"
        if not _fits(query["keys"][name], value):
            return f"`{name}` ({value!r}) must be a value of that key, of type {query['keys'][name]}. Correct it."
    if until is not None and not _fits(query["at"], until):
        return f"`until` ({until!r}) must be an instant as `at` is, of type {query['at']}. Correct it."
    return ""


def _fits(kind: str, value: object) -> bool:
    """Whether a value is one of a type, by its name.

    >>> _fits("bigint", "7"), _fits("bigint", "7x"), _fits("timestamp", 20240101), _fits("date", date(2024, 1, 1))
    (True, False, False, True)
    >>> _fits("int", "2147483647"), _fits("int", 2147483648), _fits("int", "1_000"), _fits("date", "20240101")
    (True, False, False, False)
    """
    read, bits = _READERS.get(kind.split("(")[0]), _BITS.get(kind)
    if read is None:
        return True
    if kind in _TIMES and not isinstance(value, (str, date)):
        return False
    try:
        found = read(str(value))
    except (ValueError, KeyError):
        return False
    return bits is None or -(1 << bits) <= cast(int, found) < 1 << bits


def remember(folder: str) -> None:
    """Take note that queries of this process read a control folder."""
    _KNOWN[_resolved(folder)] = folder


def prod(query: StreamingQuery, until: datetime | date | int | float | None = None, **key: Any) -> None:
    """Ask a query of this process for an answer now: about all that is open and ends at or before `until`.

    `pw.prod(query, until=50, sensor=7)` is `Control(...).prod(until=50, sensor=7)`, through the folder that the query
    was given with `control=`.
    """
    from pyspark.sql import SparkSession

    told = query.lastProgress
    if told is None:
        raise InputError(
            "`query` has not ended a micro-batch yet, and nothing is open. Wait for pw.progress(query).batch, or use "
            "pw.Control."
        )
    read = [re.fullmatch(r"FileStreamSource\[(.*)\]", source.description) for source in told.sources]
    folders = [_KNOWN[_resolved(found[1])] for found in read if found and _resolved(found[1]) in _KNOWN]
    if not folders:
        raise InputError(
            "`query` has no control folder that is known here. Give it one: segments(..., prods=True, control=folder); "
            "of a query in another process, use pw.Control(spark, folder).prod()."
        )
    Control(SparkSession.active(), folders[0]).prod(until, **key)


def _resolved(folder: str) -> str:
    """One name for a folder.

    >>> _resolved("file:/tmp/control/") == _resolved("/tmp/control"), _resolved("s3a://bucket/control")
    (True, 's3a://bucket/control')
    """
    parts = urlsplit(folder)
    return str(Path(parts.path).resolve()) if parts.scheme in ("", "file") else folder.rstrip("/")


def command(kind: str, until: Any, key: Mapping[str, Any]) -> dict[str, Any]:
    """A command as JSON has it."""
    named = {name: _named(name, value) for name, value in key.items()}
    told = None if until is None else _written(until)
    return {"kind": kind, "until": told, "key": named or None}


def _named(name: str, value: Any) -> str:
    """The value of a key, as text that Spark casts to what the key is.

    >>> class Lane(int, Enum):
    ...     FAST = 1
    >>> _named("lane", Lane.FAST), _named("open", True), _named("speed", math.nan)
    ('1', 'true', 'nan')
    """
    match value:
        case Enum():
            return _named(name, value.value)
        case datetime() | date():
            return str(_written(value))
        case bool():
            return str(value).lower()
        case str() | Integral() | Real() | Decimal():
            return str(value)
    raise InputError(
        f"`{name}` ({value!r}) must be the value of a key: text, a number, a boolean or a time. "
        f"Give one, or leave `{name}` out to ask for any."
    )


def _written(until: Any, instead: str = "") -> str | int | float:
    """An instant as JSON has it.

    >>> _written(datetime(2024, 1, 1, 8, tzinfo=UTC)), _written(date(2024, 1, 1)), _written(5.0), _written(0.5)
    ('2024-01-01T08:00:00.000000Z', '2024-01-01', 5, 0.5)
    """
    match until:
        case datetime(tzinfo=None):
            return until.isoformat(timespec="microseconds")
        case datetime():
            return until.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case date():
            return until.isoformat()
        case bool():
            pass
        case Integral() if -_LONG <= int(until) < _LONG:
            return int(until)
        case Real() if not isinstance(until, Integral) and math.isfinite(until):
            # a whole one fits an integer `at` too
            number = float(until)
            return int(number) if number.is_integer() and abs(number) < _LONG else number
    raise InputError(
        f"`until` ({until!r}) must be a datetime, a date or a finite number, as `at` is. Give one{instead}."
    )
