"""How far a stream has come, in words; and words in lines."""

from __future__ import annotations

from collections.abc import Iterable

from panewise.spec.duration import Amount, Duration
from panewise.spec.frames import TupleWindows, Windows
from panewise.spec.punctuate import (
    External,
    InBand,
    Ordered,
    OrderedPer,
    Passed,
    Punctuation,
    Scheduled,
    SlackRows,
    SlackTime,
    Watermark,
    per_key,
)

__all__ = ["lined", "progress"]


def lined(facts: Iterable[tuple[str, str]]) -> str:
    """A line for each fact that there is something to say of."""
    return "\n".join(f"{name:<14} {text}" for name, text in facts if text)


def progress(plan: Ordered, told: Punctuation) -> str:
    """How it is known how far a stream has come."""
    match told:
        case InBand():
            of = ", of their key" if told.per_key else ""
            return f"rows where {told.condition} are no data: no more rows come up to their {plan.ordered_by}{of}"
        case SlackTime():
            late = "" if told.amount in (0, Duration(0)) else str(told.amount)
            return _slack(plan, late) + _ahead(told.per, told.ahead_limit)
        case SlackRows():
            return _slack(plan, f"{told.rows} row{'s' if told.rows != 1 else ''}" if told.rows else "")
        case OrderedPer():
            return _sources(plan, told) + _ahead(told.sources, told.ahead_limit)
        case Scheduled():
            return (
                f"readings that are due have come, or are given up {told.give_up_after} later; "
                "where none is missing there is no waiting"
            )
        case Watermark():
            return "Spark's watermark, as withWatermark sets it"
        case External():
            return f"as another stream promises in its {told.time}{', key by key' if told.per_key else ''}"
        case Passed():
            return "as the plan before it passes on"


def _slack(plan: Ordered, late: str) -> str:
    missing = "is in no segment"
    generous = isinstance(plan.punctuation, (SlackTime, SlackRows)) and plan.punctuation.late == "generous"
    if generous and isinstance(getattr(plan, "scheme", None), (Windows, TupleWindows)):
        missing = "is missing from the windows that are complete"
    if not late:
        return f"rows come in order of {plan.ordered_by}; one that does not {missing}"
    return f"rows may come {late} late; one that comes later {missing}"


def _sources(plan: Ordered, told: OrderedPer) -> str:
    name = ", ".join(told.sources)
    text = f"each {name} comes in order, and "
    text += "counts by itself" if per_key(plan) else "the one that is furthest behind counts"
    if told.expect is not None:
        text += f"; nothing before all {told.expect} were heard"
    if told.idle_after is not None:
        text += f"; one that is silent for {told.idle_after} is not waited for"
    return text


def _ahead(sources: tuple[str, ...], limit: Amount | None) -> str:
    if limit is None:
        return ""
    return f"; a {', '.join(sources)} more than {limit} ahead of the others counts as just that far"
