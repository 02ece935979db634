"""Rows for segments: what `plan.fill` gives, and the ways to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from panewise.errors import InputError, SpecError, did_you_mean
from panewise.spec.aggregates import Aggregate, Aggregates, Calls, aggregates
from panewise.spec.duration import AmountLike
from panewise.spec.emit import FINAL
from panewise.spec.emit import emit as checked_emit
from panewise.spec.explain_fill import Explained, explain_fill
from panewise.spec.fill import Filling, FillOptions, check_parts, check_windows, fuses
from panewise.spec.fill import filling as checked_filling
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import InBand, Punctuation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ONLY", "Fill", "FillingSource", "filling", "is_segments"]

ONLY = ""
"""The name of a source that is the only one."""
_COUNT = "panewise n"
"""How the names begin of counts that only say whether a segment has rows."""


@dataclass(frozen=True)
class FillingSource:
    """A DataFrame whose rows fill segments, and how."""

    df: DataFrame
    at: str | None = None
    by: object = None
    where: str | None = None
    widen: object = None
    shift: AmountLike | None = None
    punctuation: Punctuation | None = None


def filling(
    df: DataFrame,
    at: str | None = None,
    *,
    by: str | list[str] | tuple[str, ...] | Mapping[str, str] | None = None,
    where: str | None = None,
    widen: tuple[AmountLike | None, AmountLike | None] | None = None,
    shift: AmountLike | None = None,
    punctuation: Punctuation | None = None,
) -> FillingSource:
    """One of several sources of `plan.fill`; what is left out is as in the plan."""
    return FillingSource(df, at, by, where, widen, shift, punctuation)


@dataclass(frozen=True)
class _Side:
    """A source, checked against the plan."""

    df: DataFrame
    filling: Filling


class Fill:
    """Segments and the sources that fill them: `.rows()` gives each matching row, `.agg(...)` one row a segment."""

    def __init__(
        self,
        plan: PlanSpec,
        find: Callable[..., DataFrame],
        framing: DataFrame,
        sources: Mapping[str, FillingSource],
        options: FillOptions,
    ) -> None:
        if options.emit == "updates":
            raise SpecError(
                '`emit` ("updates") sends all of a segment again and again, and a row fills it once. '
                'Use "fragments", or "final".'
            )
        self._plan, self._find, self._framing, self._options = plan, find, framing, options
        self._sources = {name: _checked(plan, name, source) for name, source in sources.items()}
        self._stored = is_segments(framing)
        sent = checked_emit(options.emit, options.fragment_every)
        if not self._stored:
            check_windows(plan, live=False)
        elif sent != FINAL:
            raise SpecError(
                f'`emit` ("{sent.mode}") says what is sent of segments while they are drawn, and `framing_source` '
                "holds segments found before. Leave it out, or give the rows that they were found in."
            )
        for name, side in self._sources.items():
            self._check_promise(name, side)
        parts = "part" in framing.columns and "part" not in plan.keys
        if options.emit == "fragments" or (self._stored and parts):
            for side in self._sources.values():
                check_parts(side.filling)
        if not framing.isStreaming and not any(side.df.isStreaming for side in self._sources.values()):
            for name, value in options.of_streams.items():
                if value is not None:
                    raise InputError(f"`{name}` is for a stream, and neither side is one. Leave it out.")

    def _check_promise(self, name: str, side: _Side) -> None:
        """Refuse to be told how far a table has come; in_band says besides which of its rows are no data."""
        given = side.filling.punctuation
        if given is None or side.df.isStreaming or isinstance(given, InBand) or self._as_planned(side):
            return
        raise SpecError(
            f"`punctuation` ({given}){f' of the source {name!r}' if name else ''} says how far a stream has come, and "
            "the rows that fill are a table: all of it is there. Leave it out, or read them with spark.readStream."
        )

    def _as_planned(self, side: _Side) -> bool:
        """Whether a source is the rows that draw segments, and is promised what the plan promises of them."""
        own = side.df is self._framing and not self._stored
        return own and side.filling.punctuation in (None, self._plan.punctuation)

    def agg(self, calls: Mapping[str, Any] | None = None, /, **named: Any) -> DataFrame:
        """Each segment with aggregates over its rows: `agg(n="count(*)")`.

        Of several sources, by name: `agg(bgp={"n": "count(*)"}, cpu={"top": "max(load)"})`.
        """
        asked = self._asked({**(calls or {}), **named})
        fused, rest = self._fused(asked)
        counts = [name for name in fused if name.startswith(_COUNT)]
        # rows of the framing itself are in every segment
        whole = any(name not in rest and self._sources[name].filling.where is None for name in asked)
        every = self._options.keep_empty or whole
        streaming = any(self._sources[name].df.isStreaming for name in rest)
        if not every and (len(rest) > 1 or counts or streaming):
            for i, name in enumerate(rest):
                rest[name] = (*rest[name], (f"{_COUNT}{i}", Aggregate("count", None)))
                counts.append(f"{_COUNT}{i}")
        found = self._filled(fused, rest, every or bool(counts))
        if counts and not every:
            some = " or ".join(f"`{count}` > 0" for count in counts)
            found = found.filter(f"{some} or late is not null" if self._options.late else some)
        wanted = [result for calls in asked.values() for result, _ in calls]
        wanted += ["late"] if self._options.late else []
        last = [*wanted, *counts]
        names = [*(name for name in found.columns if name not in last), *wanted]
        return found if names == found.columns else found.select(*(f"`{name}`" for name in names))

    def rows(self, source: str | None = None) -> DataFrame:
        """Each matching row with its segment: the segment's columns, then `row`; of several sources, of this one."""
        if source is None and len(self._sources) > 1:
            raise SpecError(f"`source` (None): rows of which one? {did_you_mean('', self._sources)}")
        name = next(iter(self._sources)) if source is None else source
        if name not in self._sources:
            raise SpecError(f"`source` ({name!r}) is no source of this fill. {did_you_mean(name, self._sources)}")
        if self._options.keep_empty:
            raise SpecError(
                "`keep_empty` (True) keeps segments without rows, and rows() gives rows. Use agg(...), or leave it out."
            )
        side = self._sources[name]
        if side.df.isStreaming:
            from panewise.spark.fill_stream import matching_rows as of_streams

            return of_streams(self._plan, self._source(), side.df, side.filling, self._options)
        from panewise.spark.fill import Stored, matching_rows

        self._check_late({name: ()})
        segments = self._segments({})
        found = Stored(segments, self._plan.keys, side.df, side.filling, (), self._options.shards, whole_rows=True)
        return matching_rows(found)

    def explain(self, calls: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Print what `agg` of these aggregates would do, or else `rows`: what matches, how, and what waits for what."""
        given = {**(calls or {}), **named}
        asked: Mapping[str, Calls] = self._asked(given) if given else dict.fromkeys(self._sources, ())
        fused, rest = self._fused(asked) if given else ({}, asked)
        own = {name: call for name, call in fused.items() if not name.startswith(_COUNT)}
        told = {}
        for name, called in asked.items():
            side = self._sources[name]
            origin = "the rows that draw the segments" if side.df is self._framing and not self._stored else ""
            files, why = self._read(side, called) if called and name in rest else (0, "")
            told[name] = Explained(side.filling, called, origin, side.df.isStreaming, name not in rest, files, why)
        # rows of the framing itself are in every segment
        own_rows = any(each.fused and each.filling.where is None for each in told.values())
        every = self._options.keep_empty or own_rows
        live, parts = self._framing.isStreaming, self._options.emit == "fragments"
        print(explain_fill(self._plan, told, own, stream=live, known=self._stored, every=every, parts=parts))

    def _read(self, side: _Side, calls: Calls) -> tuple[int, str]:
        """How many files Python workers read themselves, or why Spark reads the rows of a stored table."""
        if side.df.isStreaming:
            return 0, ""
        from panewise.spark.fill import Stored
        from panewise.spark.parquet import relation_of

        relation = relation_of(side.df)
        if isinstance(relation, str):
            return 0, relation
        scan = Stored(self._segments({}), self._plan.keys, side.df, side.filling, calls, self._options.shards).scan()
        return (0, scan) if isinstance(scan, str) else (len(scan.rows.files), "")

    def _check_late(self, tables: Mapping[str, Calls]) -> None:
        if self._options.late and tables:
            raise SpecError(
                "`late` (True): late rows come beside segments, and these go on to a stored table. "
                "Leave it out; pw.progress counts them, and plan.segments(..., late=True) gives them."
            )

    def _segments(self, fused: Aggregates) -> DataFrame:
        """The segments, with what can be computed on the way."""
        if self._stored:
            return self._framing.dropDuplicates()
        return self._find(self._framing, fused or None, **self._options.framing(self._framing.isStreaming))

    def _source(self) -> DataFrame:
        """What a stream of rows meets: the rows that draw segments, if they are a stream too; or known segments."""
        return self._framing if self._framing.isStreaming else self._segments({})

    def _filled(self, fused: Aggregates, rest: Mapping[str, Calls], keep_empty: bool) -> DataFrame:
        """Segments with all aggregates: those of streams in one stage, then those of stored tables one by one."""
        from panewise.spark.fill import Stored, aggregated

        options = replace(self._options, keep_empty=keep_empty)
        streams = {name: calls for name, calls in rest.items() if self._sources[name].df.isStreaming}
        tables = {name: calls for name, calls in rest.items() if name not in streams}
        self._check_late(tables)
        live = self._framing.isStreaming
        if live and streams:
            found = self._streamed(self._framing, fused, streams, options)
        else:
            found = self._framing if self._stored and tables else self._segments(fused)
        for name, calls in tables.items():
            side = self._sources[name]
            # segments as they are stored can be read by whoever reads the rows
            given = (side.df, side.filling, calls, self._options.shards)
            found = aggregated(Stored(found, self._plan.keys, *given, stored=found is self._framing), keep_empty)
        return self._streamed(found, {}, streams, options) if streams and not live else found

    def _streamed(
        self, source: DataFrame, fused: Aggregates, streams: Mapping[str, Calls], options: FillOptions
    ) -> DataFrame:
        from panewise.spark.fill_stream import aggregated

        sides = [(name, self._sources[name].df, self._sources[name].filling, streams[name]) for name in streams]
        return aggregated(self._plan, source, fused, sides, options)

    def _asked(self, given: Mapping[str, Any]) -> dict[str, Calls]:
        """The aggregates of each source."""
        if not given:
            raise SpecError('`agg` (nothing) needs an aggregate. Write .agg(n="count(*)"), or use .rows().')
        if list(self._sources) == [ONLY]:
            return {ONLY: self._named(aggregates(given))}
        found: dict[str, Calls] = {}
        for name, calls in given.items():
            if name not in self._sources:
                raise SpecError(f"`agg` ({name!r}) is no source of this fill. {did_you_mean(name, self._sources)}")
            if not isinstance(calls, Mapping) or not calls:
                raise SpecError(
                    f"`agg[{name}]` ({calls!r}) must map names of results to aggregate calls of that source. "
                    f'Write agg({name}={{"n": "count(*)"}}).'
                )
            found[name] = self._named(aggregates(calls))
        every = [result.lower() for calls in found.values() for result, _ in calls]
        for result in every:
            if every.count(result) > 1:
                raise SpecError(f"`agg` ({result!r}) is given for two sources. Choose another name for one of them.")
        return found

    def _named(self, calls: Calls) -> Calls:
        taken = [name.lower() for name in (self._framing.columns if self._stored else self._plan.keys)]
        for name, _ in calls:
            if name.lower() in taken:
                raise SpecError(
                    f"`agg` ({name!r}) can't name a result: segments have that column. Choose another name."
                )
        return calls

    def _fused(self, asked: Mapping[str, Calls]) -> tuple[dict[str, Aggregate], dict[str, Calls]]:
        """What the framing can compute on its way, from its own rows; and the rest."""
        fused: dict[str, Aggregate] = {}
        rest = {}
        for name, calls in asked.items():
            side = self._sources[name]
            given = side.filling
            if side.df is self._framing and not self._stored and fuses(self._plan, given, calls):
                if not self._as_planned(side):
                    raise SpecError(
                        f"`punctuation` ({given.punctuation}): these rows draw the segments and are added up on the "
                        "way, and the plan says how far they have come. Leave it out, or give it to `at` of the plan."
                    )
                fused |= {result: call.where(given.where) for result, call in calls}
                if given.where is not None:
                    fused[f"{_COUNT} of {name}"] = Aggregate("count", None).where(given.where)
            else:
                rest[name] = calls
        return fused, rest


def _checked(plan: PlanSpec, name: str, source: object) -> _Side:
    if not isinstance(source, FillingSource):
        raise SpecError(
            f"`filling_source` ({name!r}: {type(source).__name__}): of several sources each says how it fills. "
            'Write {"name": pw.filling(df, "time")}.'
        )
    if not hasattr(source.df, "isStreaming"):
        raise InputError(
            f"`filling_source` ({type(source.df).__name__}) must be a DataFrame of Spark. "
            "For tables in memory use pw.fill_local."
        )
    at = plan.ordered_by if source.at is None else source.at
    given = checked_filling(plan.keys, at, source.by, source.where, source.widen, source.shift, source.punctuation)
    return _Side(source.df, given)


def is_segments(df: Any) -> bool:
    """Whether a DataFrame holds segments that were found before: it has a `segment` with id, start, end and bounds."""
    for field in df.schema.fields:
        if field.name == "segment" and hasattr(field.dataType, "names"):
            return {"id", "start", "end", "bounds"} <= set(field.dataType.names)
    return False
