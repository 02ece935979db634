"""How far a running query is: what its latest micro-batch reported, which counts from the first one on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from threading import Condition
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union

from pyspark.sql.streaming.listener import StreamingQueryListener

from panewise.kernel.answers import ProdProgress
from panewise.kernel.answers import told as answers
from panewise.kernel.arrivals import REASONS
from panewise.kernel.filler import FILL_COUNTS, FILL_TOTALS
from panewise.spark.report import ANSWERS, OBSERVED, SUMS

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "At",
    "FillProgress",
    "SourceProgress",
    "StreamProgress",
    "Watch",
    "at_of",
    "brief",
    "many",
    "progress",
    "read",
    "shown",
    "size",
]

At = Union[datetime, date, int, float, str]
"""A value of `at`; text, where Python has no such time."""

_NONE: Mapping[str, int] = MappingProxyType(dict.fromkeys(REASONS, 0))
_KILO = 1000


@dataclass(frozen=True)
class SourceProgress:
    """How far one source has come: its latest `at`, and whether it is left out because it is silent."""

    source: str
    at: At
    idle: bool

    @property
    def lag(self) -> timedelta | None:
        """How long ago that was, where `at` is a timestamp."""
        return _since(self.at)


@dataclass(frozen=True)
class FillProgress:
    """How far the rows are that fill segments, of all sources; `rows`, `late` and `filled` count from the start."""

    rows: int
    late: Mapping[str, int]
    filled: int
    """Segments that are complete: no row can enter them any more."""
    rows_waiting: int
    """Rows that a segment to come may claim."""
    segments_waiting: int
    """Segments that rows to come may enter."""
    until: At | None
    """Of the source that is furthest behind, about all keys; None, where nothing was promised yet, or all was."""

    def __str__(self) -> str:
        late = ", ".join(f"{count:,} {reason}" for reason, count in self.late.items() if count) or "none"
        reached = "" if self.until is None else f"; progress: {shown(self.until)}"
        return (
            f"filling: {many(self.rows, 'row')}, late: {late}; waiting: {many(self.rows_waiting, 'row')} for segments, "
            f"{many(self.segments_waiting, 'segment')} for rows{reached}"
        )


@dataclass(frozen=True)
class StreamProgress:
    """How far a query is; `str` tells it.

    `rows`, `closed`, `keys_found`, `parts` and `late` count from the first micro-batch of the checkpoint on; all else
    is as of the latest one, `batch`. Before that one `batch` is None.
    """

    batch: int | None = None
    rows: int = 0
    closed: int = 0
    """Segments that were sent whole, or with their last part."""
    keys_found: int = 0
    """Keys that have one of these."""
    parts: int = 0
    """Parts of segments that were sent before their last."""
    late: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """Rows that are in no segment, by reason; and, as `partly_late`, those that are in some of their windows only."""
    batch_rows: int = 0
    batch_seconds: float = 0.0
    open: int = 0
    waiting: int = 0
    """Rows that progress has not passed yet."""
    aside: int = 0
    """Rows of bursts that are set aside."""
    keys: int = 0
    state_bytes: int = 0
    until: At | None = None
    """Progress: no more rows up to here. None, where nothing was promised yet."""
    per_key: bool = False
    """Whether each key is in order by itself: then `until` is that of the key furthest behind, of those seen."""
    ended: bool = False
    """Whether everything was promised."""
    sources: tuple[SourceProgress, ...] = ()
    """Those furthest behind, 100 at most, idle ones last. Of a fill: those of what draws the segments."""
    filling: FillProgress | None = None
    """Of a fill: how far the other side is."""
    prods: ProdProgress | None = None
    """Where early answers may be asked for: how many were, and how good they were."""

    @property
    def rows_per_second(self) -> float:
        """How fast the latest micro-batch was."""
        return self.batch_rows / self.batch_seconds if self.batch_seconds else 0.0

    @property
    def lag(self) -> timedelta | None:
        """How long ago progress was, where `at` is a timestamp."""
        return None if self.until is None else _since(self.until)

    def __str__(self) -> str:
        if self.batch is None:
            return "no micro-batch yet"
        late = ", ".join(f"{count:,} {reason}" for reason, count in self.late.items() if count) or "none"
        parts = f", {many(self.parts, 'part')} sent" if self.parts else ""
        aside = f"{many(self.aside, 'row')} set aside, " if self.aside else ""
        lines = [
            f"micro-batch {self.batch:,}: {many(self.batch_rows, 'row')} in {self.batch_seconds:.1f} s "
            f"({self.rows_per_second:,.0f} a second)",
            f"so far: {many(self.rows, 'row')}, {many(self.closed, 'segment')} closed{parts}; late: {late}",
            f"now: {many(self.open, 'segment')} open, {many(self.waiting, 'row')} waiting, {aside}"
            f"{many(self.keys, 'key')}, {size(self.state_bytes)} of state",
            f"progress: {self.reached}",
        ]
        lines += [str(more) for more in (self.filling, self.prods) if more is not None]
        lines += [f"  {one.source}: {shown(one.at)}{', idle' if one.idle else _ago(one.lag)}" for one in self.sources]
        return "\n".join(lines)

    @property
    def reached(self) -> str:
        """Progress, in words."""
        if self.ended:
            return "everything, the stream has ended"
        if self.until is None:
            return "nothing for all keys yet"
        whose = " (the key furthest behind)" if self.per_key else ""
        return f"{shown(self.until)}{_ago(self.lag)}{whose}"


def many(count: int, what: str) -> str:
    """A number of things.

    >>> many(1, "row"), many(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: int) -> str:
    """A number of bytes.

    >>> size(12), size(11_263), size(2_500_000)
    ('12 bytes', '11.3 kB', '2.5 MB')
    """
    if count < _KILO:
        return f"{count} bytes"
    size, units = count / _KILO, ["kB", "MB", "GB"]
    while size >= _KILO and len(units) > 1:
        size, units = size / _KILO, units[1:]
    return f"{size:,.1f} {units[0]}"


def shown(at: At) -> str:
    """A value of `at`, for a person; times with a zone in UTC.

    >>> shown(datetime(2024, 1, 1, 8, tzinfo=UTC)), shown(date(2024, 1, 1)), shown(1000)
    ('2024-01-01 08:00:00 UTC', '2024-01-01', '1000')
    """
    if isinstance(at, datetime) and at.tzinfo is not None:
        return f"{at.astimezone(UTC).replace(tzinfo=None)} UTC"
    return str(at)


def brief(length: timedelta) -> str:
    """A length of time, roughly.

    >>> [brief(timedelta(seconds=s)) for s in (0.25, 90, 5400, 10_000_000)]
    ['0.2 s', '90 s', '90 min', '116 days']
    """
    seconds = length.total_seconds()
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if abs(seconds) < 120 * size:
            return f"{seconds / size:.{1 if abs(seconds) < 10 else 0}f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def _ago(lag: timedelta | None) -> str:
    return "" if lag is None else f", {brief(lag)} ago"


def _since(at: At) -> timedelta | None:
    return datetime.now(UTC) - at if isinstance(at, datetime) and at.tzinfo is not None else None


def at_of(text: str) -> At:
    """A value of `at` from its text; the text itself, if it is none.

    >>> at_of("5"), at_of("1.7E9"), at_of("2024-01-01"), at_of("2024-01-01 08:00:00.5")
    (5, 1700000000.0, datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 8, 0, 0, 500000))
    """
    readers: tuple[Callable[[str], At], ...] = (int, float, date.fromisoformat, datetime.fromisoformat)
    for reader in readers:
        try:
            return reader(text)
        except ValueError:
            continue
    return text


def _sources(text: str | None) -> tuple[SourceProgress, ...]:
    return tuple(SourceProgress(one["source"], at_of(one["at"]), one["idle"]) for one in json.loads(text or "[]"))


def read(report: StreamingQueryProgress) -> StreamProgress | None:
    """What a micro-batch reported; None, if nothing came to it, not even a command, or no plan of ours is in it.

    Of several plans in one query: the sum, and the progress of the one that is furthest behind.
    """
    rows = [_named(row) for name, row in report.observedMetrics.items() if name.startswith(OBSERVED)]
    told = [row for row in rows if row["keys"] is not None]
    if not told:
        return None
    sums = {name: sum(row[name] for row in told) for name in SUMS}
    texts = [row["until"] for row in told]
    return StreamProgress(
        batch=report.batchId,
        rows=sums["total_rows"],
        closed=sums["total_segments"],
        keys_found=sums["total_keys_found"],
        parts=sums["total_parts"],
        late=MappingProxyType({reason: sums[f"total_{reason}"] for reason in REASONS}),
        batch_rows=sums["rows"],
        batch_seconds=report.batchDuration / 1000,
        open=sums["open"],
        waiting=sums["waiting"],
        aside=sums["aside"],
        keys=sums["keys"],
        state_bytes=sums["state_bytes"],
        until=None if None in texts else min(map(at_of, texts)),
        per_key=any(row.get("per_key") for row in told),
        ended=all(row["ended"] for row in told),
        sources=tuple(source for row in told for source in _sources(row["sources"])),
        filling=_filling([row for row in told if row.get("rows_waiting") is not None]),
        prods=next((answers(row, json.loads(row[ANSWERS])) for row in told if row.get(ANSWERS) is not None), None),
    )


def _filling(told: Sequence[Mapping[str, Any]]) -> FillProgress | None:
    if not told:
        return None
    names = (*FILL_COUNTS, *(f"total_{name}" for name in FILL_TOTALS))
    sums = {name: sum(row[name] for row in told) for name in names}
    texts = [row["filling_until"] for row in told]
    return FillProgress(
        rows=sums["total_filling_rows"],
        late=MappingProxyType({reason: sums[f"total_filling_{reason}"] for reason in REASONS}),
        filled=sums["total_filled"],
        rows_waiting=sums["rows_waiting"],
        segments_waiting=sums["segments_waiting"],
        until=None if None in texts else min(map(at_of, texts)),
    )


def _named(row: Row) -> dict[str, Any]:
    """A row's values by their names; through Connect some come apart from them."""
    told = row.asDict()
    if set(told) == {"values", "schema"}:
        return dict(zip((field["name"] for field in told["schema"]["fields"]), told["values"], strict=True))
    return told


def progress(query: StreamingQuery) -> StreamProgress:
    """How far a query is, by the latest micro-batch of this run of it."""
    known = None
    for report in reversed(query.recentProgress):
        told = read(report)
        if told is not None:
            known = told if known is None else _with_unanswered(known, told)
            if known.prods is None:
                break
    return StreamProgress() if known is None else known


def _with_unanswered(seen: StreamProgress, other: StreamProgress | None) -> StreamProgress:
    """A report, which counts the prods that found no answer in another one too: no shard knows of all answers."""
    if seen.prods is None or other is None or other.prods is None:
        return seen
    return replace(seen, prods=replace(seen.prods, unanswered=seen.prods.unanswered + other.prods.unanswered))


class Watch(StreamingQueryListener):
    """Hears of every micro-batch in a session, from when it is made until `stop`, or the end of a `with`.

    `told`, if given, is called with a query's id and its StreamProgress after each: `Watch(spark, print)`.
    """

    def __init__(self, spark: SparkSession, told: Callable[[str, StreamProgress], object] | None = None) -> None:
        self._spark, self._told = spark, told
        self._known: dict[str, StreamProgress] = {}
        self._ended: set[str] = set()
        self._changed = Condition()
        spark.streams.addListener(self)

    def stop(self) -> None:
        """Hear of nothing any more."""
        self._spark.streams.removeListener(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def known(self, query: str) -> StreamProgress | None:
        """The latest of a query, by its id, which it keeps for as long as its checkpoint."""
        with self._changed:
            return self._known.get(query)

    def settled(self, run: str, seconds: float) -> bool:
        """Whether all is known of a run that is over, by its runId; news take a while, so this waits, but no longer."""
        with self._changed:
            return self._changed.wait_for(lambda: run in self._ended, seconds)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark calls it so
        """Called by Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark calls it so
        """Called by Spark after each micro-batch."""
        query, seen = str(event.progress.id), read(event.progress)
        if seen is None:
            return
        with self._changed:
            seen = self._known[query] = _with_unanswered(seen, self._known.get(query))
        if self._told is not None:
            self._told(query, seen)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark calls it so
        """Called by Spark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark calls it so
        """Called by Spark."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()
