"""The plan that users hold: a description, and the ways to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from panewise.spec.check import choice, column, columns
from panewise.spec.explain import explain
from panewise.spec.plan import TIES, PlanSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan(PlanSpec):
    """What to find and in which order; immutable, hashable, picklable. `threshold_frames` and its kin build one."""

    def by(self, *names: str) -> Plan:
        """Within each value of these columns."""
        return replace(self, keys=columns("by", names))

    def at(self, name: str, *, tie_break: str | Sequence[str] | None = None, ties: str = "all") -> Plan:
        """In the order of this column, then of `tie_break`."""
        return replace(
            self,
            time=column("at", name),
            tie_break=() if tie_break is None else columns("tie_break", tie_break),
            ties=choice("ties", ties, TIES),
        )

    def segments(
        self, df: DataFrame, agg: Mapping[str, str] | None = None, *, observation: Observation | None = None
    ) -> DataFrame:
        """The segments of a DataFrame, one row each, with aggregates over their rows.

        `observation` receives `rows` (read) and `null_at` (dropped for want of an `at`) once an action has run.
        """
        from panewise.spark.batch import segments

        return segments(self, df, agg, observation)

    def explain(self, agg: Mapping[str, str] | None = None) -> None:
        """Print what will happen: stages, shape, and the state that a key needs."""
        print(explain(self, agg))
