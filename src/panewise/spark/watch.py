"""How far a running query is: what its micro-batches reported, added up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from threading import Condition
from types import MappingProxyType
from typing import TYPE_CHECKING, Union

from pyspark.sql.streaming.listener import StreamingQueryListener

from panewise.kernel.shard import REASONS
from panewise.spark.stream import OBSERVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["At", "SourceProgress", "StreamProgress", "Watch", "brief", "many", "progress", "shown", "size"]

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
class StreamProgress:
    """How far a query is; `str` tells it.

    `rows`, `closed`, `keys_found`, `parts` and `late` count from the micro-batch `since` on; all else is as of the
    latest one, `batch`. Before the first one `batch` is None.
    """

    batch: int | None = None
    since: int | None = None
    rows: int = 0
    closed: int = 0
    """Segments that were sent whole, or with their last part."""
    keys_found: int = 0
    """Keys whose first segment is among these."""
    parts: int = 0
    """Parts of segments that were sent before their last."""
    late: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """Rows that are in no segment, by reason."""
    batch_rows: int = 0
    batch_seconds: float = 0.0
    open: int = 0
    waiting: int = 0
    """Rows that progress has not passed yet."""
    keys: int = 0
    state_bytes: int = 0
    until: At | None = None
    """Progress: no more rows up to here. None, where nothing was promised yet, or where each key has its own."""
    ended: bool = False
    """Whether everything was promised."""
    sources: tuple[SourceProgress, ...] = ()

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
        begun = "" if not self.since else f" since micro-batch {self.since:,}"
        parts = f", {many(self.parts, 'part')} sent" if self.parts else ""
        lines = [
            f"micro-batch {self.batch:,}: {many(self.batch_rows, 'row')} in {self.batch_seconds:.1f} s "
            f"({self.rows_per_second:,.0f} a second)",
            f"so far{begun}: {many(self.rows, 'row')}, {many(self.closed, 'segment')} closed{parts}; late: {late}",
            f"now: {many(self.open, 'segment')} open, {many(self.waiting, 'row')} waiting, "
            f"{many(self.keys, 'key')}, {size(self.state_bytes)} of state",
            f"progress: {self.reached}",
        ]
        lines += [f"  {one.source}: {shown(one.at)}{', idle' if one.idle else _ago(one.lag)}" for one in self.sources]
        return "\n".join(lines)

    @property
    def reached(self) -> str:
        """Progress, in words."""
        if self.ended:
            return "everything, the stream has ended"
        return "nothing yet" if self.until is None else f"{shown(self.until)}{_ago(self.lag)}"


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


def _at(text: str) -> At:
    """A value of `at` from its text.

    >>> _at("5"), _at("1.7E9"), _at("2024-01-01"), _at("2024-01-01 08:00:00.5")
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
    return tuple(SourceProgress(one["source"], _at(one["at"]), one["idle"]) for one in json.loads(text or "[]"))


def _taken(known: StreamProgress, batch: StreamingQueryProgress) -> StreamProgress:
    """What is known after a micro-batch; one that was taken before, or that no plan of ours was in, adds nothing."""
    told = [row.asDict() for name, row in batch.observedMetrics.items() if name.startswith(OBSERVED)]
    if not told or (known.batch is not None and batch.batchId <= known.batch):
        return known
    sums = {name: _sum(row[name] for row in told) for name in ("rows", "segments", "keys_found", "parts", *REASONS)}
    after = replace(
        known,
        batch=batch.batchId,
        since=batch.batchId if known.since is None else known.since,
        rows=known.rows + sums["rows"],
        closed=known.closed + sums["segments"],
        keys_found=known.keys_found + sums["keys_found"],
        parts=known.parts + sums["parts"],
        late=MappingProxyType({reason: known.late[reason] + sums[reason] for reason in REASONS}),
        batch_rows=sums["rows"],
        batch_seconds=batch.batchDuration / 1000,
    )
    reported = [row for row in told if row["keys"] is not None]
    if not reported:  # nothing came, not even a command, so no shard had anything to do
        return after
    texts = [row["until_text"] for row in reported]
    return replace(
        after,
        open=_sum(row["open"] for row in reported),
        waiting=_sum(row["waiting"] for row in reported),
        keys=_sum(row["keys"] for row in reported),
        state_bytes=_sum(row["state_bytes"] for row in reported),
        until=None if None in texts else min(map(_at, texts)),
        ended=all(row["ended"] for row in reported),
        sources=tuple(one for row in reported for one in _sources(row["sources"])),
    )


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count or 0 for count in counts)


class Watch(StreamingQueryListener):
    """Adds up what the queries of a session report, from when it is put on until `stop`, or the end of a `with`.

    `told`, if given, is called with a query's id and its StreamProgress after each micro-batch.
    """

    def __init__(self, spark: SparkSession, told: Callable[[str, StreamProgress], None] | None = None) -> None:
        self._spark, self._told = spark, told
        self._known: dict[str, StreamProgress] = {}
        self._changed = Condition()
        self._ended: set[str] = set()
        spark.streams.addListener(self)
        _ON.append(self)

    def stop(self) -> None:
        """Watch no longer."""
        if self in _ON:
            _ON.remove(self)
            self._spark.streams.removeListener(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def known(self, query: str) -> StreamProgress | None:
        """What was reported of a query, by its id, which is that of its checkpoint."""
        with self._changed:
            return self._known.get(query)

    def settled(self, run: str, seconds: float) -> bool:
        """Whether all reports of a run that is over have come, which they do a little later; waits so long for it."""
        with self._changed:
            return self._changed.wait_for(lambda: run in self._ended, seconds)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Called by Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Called by Spark after each micro-batch."""
        query = str(event.progress.id)
        with self._changed:
            before = self._known.get(query, StreamProgress())
            after = self._known[query] = _taken(before, event.progress)
        if self._told is not None and after is not before:
            self._told(query, after)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Called by Spark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Called by Spark."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()


_ON: list[Watch] = []
"""The watches that are on."""


def progress(query: StreamingQuery) -> StreamProgress:
    """How far a query is.

    Spark keeps the reports of the latest micro-batches, about a hundred of this run; what was before them is counted
    only where a `Watch` was on. `since` says from which micro-batch on the counts count.
    """
    known = next((seen for watch in _ON if (seen := watch.known(str(query.id))) is not None), StreamProgress())
    for batch in query.recentProgress:
        known = _taken(known, batch)
    return known
