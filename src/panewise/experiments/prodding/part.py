"""What a part of an experiment gives: lines of the table, and pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from panewise.experiments.prodding.streams import Answers

__all__ = ["Found", "Line", "Part", "Tell", "finals"]

Tell = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@dataclass(frozen=True)
class Line:
    """A number that was published, or the words for it, beside ours."""

    experiment: str
    setting: str
    measure: str
    published: str
    """Empty where nothing was."""
    ours: tuple[float, ...]
    """One number, or from where to where it goes."""
    unit: str
    note: str = ""
    """Why the two differ, or what is to be known of ours."""
    between: str = " to "

    @property
    def shown(self) -> str:
        """Our numbers, with as many digits as mean something.

        >>> Line("", "", "", "99.5 to 98 %", (99.4567, 98.1), "%").shown, Line("", "", "", "", (615.43,), "s").shown
        ('99.46 to 98.10 %', '615.4 s')
        """
        digits = 2 if self.unit == "%" or abs(self.ours[0]) < 100 else 1
        return f"{self.between.join(f'{number:.{digits}f}' for number in self.ours)} {self.unit}"


@dataclass(frozen=True)
class Found:
    """What came of a part."""

    lines: list[Line] = field(default_factory=list)
    pictures: dict[str, Figure] = field(default_factory=dict)
    """By the names of their files."""


Part = Callable[[bool, Tell], Found]
"""Whether to be quick, and whom to tell how far it is."""

_FREE = (
    "In the simulation answering takes the operator no time, so that this shows one thing only: no final answer waits "
    "for an early one, or is changed by it."
)


def finals(experiment: str, setting: str, asked: Answers, never: Answers) -> Line:
    """That final answers come when they would have."""
    measure = "final latency: asked, never asked"
    return Line(experiment, setting, measure, "the same", (asked.final, never.final), "s", _FREE, ", ")
