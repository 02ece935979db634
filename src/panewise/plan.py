"""The plan that users hold: a description, and the ways to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from panewise.errors import InputError, SpecError
from panewise.fill import ONLY, Fill, FillingSource
from panewise.spec.aggregates import Aggregate, Aggregates, aggregates
from panewise.spec.aside import checked_set_aside
from panewise.spec.check import choice, column, columns, flag
from panewise.spec.duration import AmountLike
from panewise.spec.emit import emit as checked_emit
from panewise.spec.explain import explain
from panewise.spec.fill import FillOptions
from panewise.spec.plan import TIES, PlanSpec
from panewise.spec.prod import prods as checked_prods
from panewise.spec.punctuate import Punctuation
from panewise.spec.punctuate import punctuation as checked_punctuation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan(PlanSpec):
    """What to find and in which order; immutable, hashable, picklable. `threshold_frames` and its kin build one."""

    def by(self, *names: str) -> Plan:
        """Within each value of these columns."""
        return replace(self, keys=columns("by", names))

    def at(
        self,
        name: str,
        punctuation: Punctuation | None = None,
        *,
        tie_break: str | Sequence[str] | None = None,
        ties: str = "all",
    ) -> Plan:
        """In the order of this column, then of `tie_break`; `punctuation` says how a stream knows its progress."""
        return replace(
            self,
            time=column("at", name),
            tie_break=() if tie_break is None else columns("tie_break", tie_break),
            ties=choice("ties", ties, TIES),
            punctuation=None if punctuation is None else checked_punctuation(punctuation),
        )

    def segments(
        self,
        df: DataFrame,
        agg: Aggregates | None = None,
        *,
        emit: str = "final",
        fragment_every: AmountLike | None = None,
        late: bool = False,
        punctuations: bool = False,
        shards: int | None = None,
        control: str | None = None,
        clock: DataFrame | None = None,
        prods: Any = None,
        accuracy: Any = None,
        set_aside: Any = None,
        observation: Observation | None = None,
    ) -> DataFrame:
        """The segments of a DataFrame, one row each, with aggregates over their rows.

        `emit` sends what is certain of a segment before it is over: its `"fragments"`, or `"updates"` of all of it,
        at most every `fragment_every`. Of a streaming DataFrame: `late` adds the rows that broke a promise, in a
        column of that name (`pw.outputs` tells them apart); `punctuations` adds how far each shard has come, in a
        column `punctuation`: no segment to come starts at or before its `start`, or ends at or before its `end`;
        `shards` is how many parts the keys are dealt to, for good; `control` is a folder through which a running query
        is told things (`pw.Control`); `clock` a stream with a `timestamp` that ticks for `idle_after` and prodders, in
        place of Spark's own rate source; `prods` says where requests for early answers come from (`pw.prodder`,
        `pw.prods_in`, `pw.prods_from`, several of them, or True for the control folder alone), and `accuracy` is a
        function of early values, final values and the seconds between them, as arrays, or one for each of some
        aggregates, in place of the measure of how near the early ones were; `set_aside` lets what is left of a burst
        wait after its prod, so that other windows are on time (`pw.set_aside`).

        Of a batch: `observation` receives `rows` (read) and `null_at` (dropped for want of an `at`) once an action
        has run.
        """
        sent = checked_emit(emit, fragment_every)
        if df.isStreaming:
            from panewise.spark.stream import segments as of_stream

            if observation is not None:
                raise InputError(
                    "`observation` is for a batch; a stream is watched while it runs. Use pw.progress(query)."
                )
            given_prods = checked_prods(prods, accuracy)
            return of_stream(
                self, df, agg, sent, late=late, punctuations=punctuations, shards=shards, control=control, clock=clock,
                prods=given_prods, set_aside=checked_set_aside(set_aside, self.scheme, given_prods),
            )  # fmt: skip
        from panewise.spark.batch import segments

        given = {
            "late": late or None,
            "punctuations": punctuations or None,
            "shards": shards,
            "control": control,
            "clock": clock,
            "prods": prods,
            "accuracy": accuracy,
            "set_aside": set_aside,
        }
        for name, value in given.items():
            if value is not None:
                raise InputError(
                    f"`{name}` is for a stream, and `df` is a batch. Leave it out, or use spark.readStream."
                )
        return segments(self, df, agg, observation, sent)

    @overload
    def agg(self, given: Aggregates | None = None, /, **named: str | Aggregate) -> Plan: ...

    @overload
    def agg(self, given: DataFrame, calls: Aggregates | None = None, /, **named: str | Aggregate) -> DataFrame: ...

    def agg(self, given: Any = None, calls: Aggregates | None = None, /, **named: str | Aggregate) -> Plan | DataFrame:
        """Aggregates over the rows of each segment: `agg(df, top="max(speed)")` is `segments(df, {"top": ...})`.

        Without a DataFrame, the plan with these aggregates, to be run later or to be followed by another.
        """
        if given is None or isinstance(given, Mapping):
            return replace(self, calls=aggregates({**(given or {}), **named}))
        return self.segments(given, {**(calls or {}), **named})

    def then(self, plan: Plan) -> Plan:
        """A plan over the segments that this one finds: windows over frames, frames over windows, frames over frames.

        What it reads of them: keys, aggregates, `start`, `end`, `duration` (seconds, where `at` is a time), `rows`,
        `id`. Windows take each segment in every window that it meets, clipped to it; other plans take it as a row at
        its `start`, or with `.at("end")` at its end.
        """
        if not isinstance(plan, PlanSpec):
            raise SpecError(
                f"`then` ({type(plan).__name__}) must be a plan over the segments of this one. "
                'Give one, such as tumbling_windows("1 minute").agg(n="count(*)").'
            )
        if plan.punctuation is not None:
            raise SpecError(
                "`punctuation`: the plan before it tells how far segments have come. Leave it out of what follows."
            )
        return replace(self, following=_over(self.following, plan))

    def fill(
        self,
        framing_source: DataFrame,
        filling_source: DataFrame | Mapping[str, FillingSource],
        *,
        at: str | None = None,
        by: str | Sequence[str] | Mapping[str, str] | None = None,
        where: str | None = None,
        widen: tuple[AmountLike | None, AmountLike | None] | None = None,
        shift: AmountLike | None = None,
        punctuation: Punctuation | None = None,
        keep_empty: bool = False,
        emit: str = "final",
        fragment_every: AmountLike | None = None,
        late: bool = False,
        shards: int | None = None,
        control: str | None = None,
        clock: DataFrame | None = None,
    ) -> Fill:
        """The segments of one DataFrame filled with the rows of another: `.rows()`, or `.agg(n="count(*)")`.

        A row fills the segments of its own key (`by` names its key columns, where they are called otherwise) whose
        bounds `at` lies in. `where` says which rows count; `widen=("30 seconds", None)` moves the bounds outward;
        `shift="-1 day"` looks for rows a day before. `keep_empty` keeps segments without rows. `framing_source` may
        hold segments found before. Of several sources give each a name: {"bgp": pw.filling(bgp, "ts"), ...}.

        Of a streaming `filling_source`: `punctuation` says how it is known how far it has come. The rest is as for
        `segments`; `late=True` adds the rows of all sources that broke a promise.
        """
        if self.following is not None:
            raise SpecError(
                "`fill`: a plan follows this one, and what would be filled is not clear. Fill the first plan, or write "
                "its results to a table and fill those."
            )
        options = FillOptions(flag("keep_empty", keep_empty), late, shards, control, clock, emit, fragment_every)
        given = (at, by, where, widen, shift, punctuation)
        if not isinstance(filling_source, Mapping):
            sources = {ONLY: FillingSource(filling_source, *given)}
        elif any(value is not None for value in given):
            raise SpecError(
                "`filling_source` names several sources, and each says for itself how it fills. "
                "Give `at`, `by` and the rest to pw.filling."
            )
        else:
            sources = dict(filling_source)
        return Fill(self, self.segments, framing_source, sources, options)

    def explain(self, agg: Aggregates | None = None, df: DataFrame | None = None, *, prods: Any = None) -> None:
        """Print what will happen: stages, shape, the state that a key needs, and what prods do to it.

        With a DataFrame also which way its rows go, and why.
        """
        path = ""
        if df is not None and df.isStreaming:
            from panewise.spark.stream import path_of as path_of_stream

            path = path_of_stream(self.chain()[0], df, agg)
        elif df is not None:
            from panewise.spark.batch import path_of

            path = path_of(self.chain()[0], df, agg)
        print(explain(self, agg, checked_prods(prods), path))


def _over(plan: PlanSpec | None, last: PlanSpec) -> PlanSpec:
    """A plan at the end of others."""
    return last if plan is None else replace(plan, following=_over(plan.following, last))
