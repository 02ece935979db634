"""What a scheme brings to the operators: settings, and how to read a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from panewise.kernel import segmenting as sg
from panewise.kernel.page import Array, Page
from panewise.kernel.progress import Progress
from panewise.spec.emit import Emit
from panewise.spec.frames import Scheme

__all__ = ["ChainFraming", "Framing", "RunFraming", "hide_nulls", "settings"]

Reader = Callable[[Page], tuple[Array, Array]]
"""Codes [n] and values [V, n] of a page's rows."""


@dataclass(frozen=True)
class RunFraming:
    """A scheme of runs: when do neighbours split, and are gaps wanted."""

    read: Reader
    width: int = 0
    split: int = 0
    gaps: bool = False
    fewest: int = 1
    apart: Any = None
    local: bool = True
    """Whether a row and its neighbour alone decide if it belongs."""


@dataclass(frozen=True)
class ChainFraming:
    """A scheme of chains: the measure, its bounds, and the operator that asks it."""

    read: Reader
    kind: int
    bounds: tuple[float, ...]
    strict: bool
    cells: int
    operator: Callable[..., Any]
    solo: bool = True


Framing = Union[RunFraming, ChainFraming]


def settings(scheme: Scheme, progress: Progress, emit: Emit, fewest: int = 1) -> tuple[list[int], list[Any]]:
    """The settings that every operator reads: whole numbers, and amounts of `at`."""
    limits, schedule = scheme.limits, scheme.schedule
    whole = [0] * sg.N_WHOLE
    whole[sg.EXTENT] = {"observed": sg.OBSERVED, "held": sg.HELD, "possible": sg.POSSIBLE}[scheme.extent]
    whole[sg.HAS_MIN] = int(limits.min_duration is not None)
    whole[sg.HAS_MAX] = int(limits.max_duration is not None)
    whole[sg.MIN_ROWS] = max(limits.min_rows or 1, fewest)
    whole[sg.MAX_ROWS] = limits.max_rows or 0
    whole[sg.LONGEST] = int(scheme.longest)
    whole[sg.EMIT] = {"final": sg.FINAL, "fragments": sg.FRAGMENTS, "updates": sg.UPDATES}[emit.mode]
    measured: list[Any] = [0] * sg.N_MEASURED
    if emit.every is not None:
        measured[sg.PART_EVERY] = progress.amount("fragment_every", emit.every)
    if limits.min_duration is not None:
        measured[sg.MIN_DURATION] = progress.amount("min_duration", limits.min_duration)
    if limits.max_duration is not None:
        measured[sg.MAX_DURATION] = progress.amount("max_duration", limits.max_duration)
    if schedule is not None:
        words = {"ignored": sg.IGNORED, "breaks": sg.BREAKS, "satisfies": sg.SATISFIES, "bridged": sg.BRIDGED}
        whole[sg.MISSING] = words[schedule.missing]
        if whole[sg.MISSING] != sg.IGNORED:
            measured[sg.EVERY] = every = progress.amount("expect_every", schedule.every)
            if schedule.jitter is not None:
                whole[sg.HAS_JITTER] = 1
                measured[sg.PATIENCE] = every + progress.amount("jitter", schedule.jitter)
    return whole, measured


def hide_nulls(values: Array, code: Array, nulls: str) -> Array:
    """The codes, with rows that lack a framing value hidden or breaking."""
    if len(values):
        absent = np.isnan(values).any(axis=0)
        if absent.any():
            code[absent] = sg.INVISIBLE if nulls == "invisible" else sg.OUT
    return code
