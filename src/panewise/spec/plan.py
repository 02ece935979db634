"""A whole plan: a scheme, the keys it applies within, the order of rows, and how progress is known."""

from __future__ import annotations

from dataclasses import dataclass

from panewise.errors import SpecError
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
