"""What panewise raises.

::

    PanewiseError
    ├── SpecError      a plan that cannot be: a wrong option, value or combination (also a ValueError)
    ├── InputError     data that does not fit the plan: an unknown column, an unusable type (also a ValueError)
    ├── DataError      rows that break a rule while they are read: a tie under ties="error", an overflowing sum
    ├── StateError     a checkpoint that does not fit the plan, or this version
    └── JobError       a job file that cannot be read (also a ValueError)

Every message names the argument, the value, the rule and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["DataError", "InputError", "JobError", "PanewiseError", "SpecError", "StateError", "did_you_mean"]


class PanewiseError(Exception):
    """The root of everything that panewise raises."""


class SpecError(PanewiseError, ValueError):
    """A plan that cannot be."""


class InputError(PanewiseError, ValueError):
    """Data that does not fit the plan."""


class DataError(PanewiseError):
    """Rows that break a rule while they are read."""


class StateError(PanewiseError):
    """A checkpoint that does not fit the plan, or this version."""


class JobError(PanewiseError, ValueError):
    """A job file that cannot be read."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The closing sentence of an unknown-name error: the nearest name, or all of them.

    >>> did_you_mean("min_duratoin", ["min_duration", "min_rows"])
    'Did you mean `min_duration`?'
    >>> did_you_mean("zzz", ["b", "a"])
    'Known: `a`, `b`.'
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean `{near[0]}`?"
    return "Known: " + ", ".join(f"`{n}`" for n in names) + "." if names else "There are none."
