"""A whole plan: a scheme, the keys it applies within, the order of rows, and how progress is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from panewise.errors import SpecError
from panewise.spec.aggregates import Aggregates, Calls, aggregates
from panewise.spec.frames import RowWindows, Scheme
from panewise.spec.punctuate import Punctuation

__all__ = ["TIES", "PlanSpec"]

TIES = ("all", "first", "last", "error")
"""What rows of one key with equal `at` mean: all count in the order of tie_break, or one does, or none may be."""


@dataclass(frozen=True)
class PlanSpec:
    """What to find: `scheme` within `by`, in order of `at`, then `tie_break`; a stream needs a punctuation too."""

    scheme: Scheme
    keys: tuple[str, ...] = ()
    time: str | None = None
    tie_break: tuple[str, ...] = ()
    ties: str = "all"
    punctuation: Punctuation | None = None
    calls: Calls = ()
    """Aggregates over the rows of each segment, by the names of their results."""
    following: PlanSpec | None = None
    """The plan over the segments of this one."""

    def asked(self, agg: Aggregates | None) -> Calls:
        """These aggregates, or else those of the plan."""
        if agg is not None and self.calls:
            raise SpecError(
                f"`agg` ({', '.join(agg)}) is given, and the plan has aggregates of its own "
                f"({', '.join(name for name, _ in self.calls)}). Give one or the other."
            )
        return self.calls if agg is None else aggregates(agg)

    def chain(self) -> tuple[PlanSpec, ...]:
        """This plan, and those that follow, each by itself."""
        rest = () if self.following is None else self.following.chain()
        return (replace(self, following=None), *rest)

    @property
    def one_sequence(self) -> bool:
        """Whether rows of all keys are numbered together."""
        return isinstance(self.scheme, RowWindows) and not self.scheme.partitioned

    @property
    def ordered_by(self) -> str:
        """The progressing attribute; a plan cannot run without one."""
        if self.time is None:
            raise SpecError('`at` is not set: a plan needs the column that orders its rows. Add .at("column").')
        return self.time
