"""Punctuation: how it is known that a stream has come to t, so that no more rows with `at` <= t will come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, Union

from panewise.errors import SpecError
from panewise.spec.check import MAX_WHOLE, choice, column, columns, flag, shown, sql
from panewise.spec.duration import Amount, AmountLike, Duration, same_kind
from panewise.spec.duration import amount as checked_amount

if TYPE_CHECKING:
    from panewise.spec.plan import PlanSpec

__all__ = [
    "LATE",
    "MAX_SLACK_ROWS",
    "External",
    "InBand",
    "Ordered",
    "OrderedPer",
    "Passed",
    "Punctuation",
    "Scheduled",
    "SlackRows",
    "SlackTime",
    "Watermark",
    "check_promises",
    "check_punctuation",
    "external",
    "in_band",
    "on_the_clock",
    "ordered_per",
    "per_key",
    "punctuation",
    "schedule",
    "slack",
    "watermark",
]

LATE = ("generous", "consistent")
"""Which windows a late row is missing from: those that are closed already, or all of its own."""

MAX_SLACK_ROWS = 100_000
"""How many rows slack may count: every shard carries that many times."""


class _Punctuation:
    __slots__ = ()

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """Every amount of `at` in it, with the name that errors give it."""
        return ()


@dataclass(frozen=True, slots=True)
class InBand(_Punctuation):
    """Rows of the stream itself for which `condition` holds: they promise, and are never data."""

    condition: str
    per_key: bool = False


@dataclass(frozen=True, slots=True)
class SlackTime(_Punctuation):
    """Rows come at most `amount` after the largest `at` so far; `per` tells apart clocks that may run ahead."""

    amount: Amount
    late: str = "generous"
    per: tuple[str, ...] = ()
    ahead_limit: Amount | None = None

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """The slack and the limit."""
        return (("slack", self.amount), *_given("ahead_limit", self.ahead_limit))


@dataclass(frozen=True, slots=True)
class SlackRows(_Punctuation):
    """At most `rows` rows with a larger `at` come before a row."""

    rows: int
    late: str = "generous"


@dataclass(frozen=True, slots=True)
class OrderedPer(_Punctuation):
    """Each source is in order; progress is the minimum over sources, but for those idle for `idle_after`."""

    sources: tuple[str, ...]
    idle_after: Duration | None = None
    expect: int | None = None
    ahead_limit: Amount | None = None

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """The limit; `idle_after` is measured on the clock."""
        return _given("ahead_limit", self.ahead_limit)


@dataclass(frozen=True, slots=True)
class Scheduled(_Punctuation):
    """Expected readings have come, or are given up once the largest `at` is `give_up_after` past them."""

    give_up_after: Amount

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """How long a reading is waited for."""
        return (("give_up_after", self.give_up_after),)


@dataclass(frozen=True, slots=True)
class Passed(_Punctuation):
    """The plan before tells how far it has come: each of its shards, in rows that say which; 0 for one voice."""

    shards: int


@dataclass(frozen=True, slots=True)
class Watermark(_Punctuation):
    """Spark's own watermark, which the stream carries already."""


@dataclass(frozen=True, slots=True)
class External(_Punctuation):
    """Another stream, each of whose rows promises what its column `time` says.

    `source` is a DataFrame: it takes no part in comparisons, and stays behind when a plan is pickled.
    """

    time: str
    per_key: bool
    source: Any = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[type[External], tuple[str, bool, None]]:
        return External, (self.time, self.per_key, None)


Punctuation = Union[InBand, SlackTime, SlackRows, OrderedPer, Scheduled, Passed, Watermark, External]


def _given(name: str, value: Amount | None) -> tuple[tuple[str, Amount], ...]:
    return () if value is None else ((name, value),)


def in_band(condition: str, *, per_key: bool = False) -> InBand:
    """Rows for which `condition` holds are punctuations: no more rows up to their `at`, of any key or of theirs.

    >>> in_band("kind = 'heartbeat'")
    InBand(condition="kind = 'heartbeat'", per_key=False)
    """
    return InBand(sql("condition", condition, "kind = 'heartbeat'"), flag("per_key", per_key))


def slack(
    amount: AmountLike | None = None,
    *,
    rows: int | None = None,
    late: str = "generous",
    per: str | Sequence[str] | None = None,
    ahead_limit: AmountLike | None = None,
) -> SlackTime | SlackRows:
    """Rows may be late by an amount of `at`, or by a number of rows: t = just below (largest `at` so far - amount).

    With `ahead_limit` a source (`per`) whose clock is further than that ahead of the others counts as just so far.

    >>> slack("10 seconds")
    SlackTime(amount=Duration(micros=10000000), late='generous', per=(), ahead_limit=None)
    >>> slack(rows=50)
    SlackRows(rows=50, late='generous')
    """
    if amount is not None and rows is not None:
        raise SpecError(
            f"`amount` ({shown(amount)}) can't be combined with `rows` ({shown(rows)}): slack is measured in the one "
            "or in the other. Leave one out."
        )
    word = choice("late", late, LATE)
    sources = () if per is None else columns("per", per)
    limit = None if ahead_limit is None else checked_amount("ahead_limit", ahead_limit)
    if rows is not None:
        for name, value in (("per", ", ".join(sources) or None), ("ahead_limit", limit)):
            if value is not None:
                raise SpecError(
                    f"`{name}` ({value}) can't be combined with `rows` ({shown(rows)}): rows are counted in the "
                    f"whole stream, whichever source they come from. Leave `{name}` out, or give an amount."
                )
        return SlackRows(_rows(rows), word)
    if amount is None:
        raise SpecError(
            "`amount` (None) and `rows` (None): slack says how late a row may come, in the one or in the other. "
            'Give one of them, such as slack("10 seconds").'
        )
    size = checked_amount("slack", amount, zero=True)
    if limit is not None and not sources:
        raise SpecError(
            f"`ahead_limit` ({limit}) needs `per`: a clock can only run ahead of other sources' clocks. "
            "Add `per`, the columns that tell sources apart."
        )
    if sources and limit is None:
        raise SpecError(
            f"`per` ({', '.join(sources)}) tells whose clock runs ahead, and without `ahead_limit` each may. "
            "Add `ahead_limit`, or leave `per` out."
        )
    if limit is not None and not same_kind(size, limit):
        raise SpecError(
            f"`ahead_limit` ({limit}) and `slack` ({size}) must be of one kind. Write both as `at` is measured."
        )
    return SlackTime(size, word, sources, limit)


def _rows(value: object) -> int:
    if not _is_whole(value, 0, MAX_SLACK_ROWS):
        raise SpecError(
            f"`rows` ({_as_given(value)}) must be a whole number from 0 to {MAX_SLACK_ROWS:,}: every shard carries "
            "that many times. Give fewer, or an amount of `at`."
        )
    return int(value)


def _is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def _as_given(value: object) -> str:
    return shown(value) if isinstance(value, Integral) else repr(value)


def ordered_per(
    *sources: str,
    idle_after: str | timedelta | Duration | None = None,
    expect: int | None = None,
    ahead_limit: AmountLike | None = None,
) -> OrderedPer:
    """Each source is in order of `at`: t = the minimum over sources of just below their latest `at`.

    A source from which nothing has come for `idle_after`, on the clock, is left out; before `expect` sources were
    heard there is no progress.

    >>> ordered_per("sensor", idle_after="30 seconds").sources
    ('sensor',)
    """
    if not sources:
        raise SpecError(
            "`sources` () must name the columns that tell sources apart, at least one. "
            'Write them as ordered_per("sensor").'
        )
    limit = None if ahead_limit is None else checked_amount("ahead_limit", ahead_limit)
    idle = None if idle_after is None else on_the_clock("idle_after", idle_after)
    return OrderedPer(columns("sources", sources), idle, _expected(expect), limit)


def on_the_clock(name: str, value: object) -> Duration:
    """A length of time on the clock, whatever `at` is."""
    length = checked_amount(name, value) if isinstance(value, (str, timedelta, Duration)) else None
    if not isinstance(length, Duration):
        raise SpecError(
            f"`{name}` ({_as_given(value)}) is measured on the clock, whatever `at` is. "
            'Give a length of time, such as "30 seconds".'
        )
    return length


def _expected(value: object) -> int | None:
    if value is None:
        return None
    if not _is_whole(value, 1, MAX_WHOLE):
        raise SpecError(
            f"`expect` ({_as_given(value)}) must be a whole number of sources, from 1 to 2^63 - 1. "
            "Give how many there are, or leave `expect` out."
        )
    return int(value)


def schedule(*, give_up_after: AmountLike) -> Scheduled:
    """Rows come as `expect_every` says: t passes a reading that has come, or that is this far behind the stream.

    >>> schedule(give_up_after="5 minutes")
    Scheduled(give_up_after=Duration(micros=300000000))
    """
    return Scheduled(checked_amount("give_up_after", give_up_after))


def watermark() -> Watermark:
    """Spark's own: t = the watermark that `df.withWatermark` has set.

    >>> watermark()
    Watermark()
    """
    return Watermark()


def external(source: Any, at: str, *, per_key: bool = False) -> External:
    """Another stream: each of its rows is a punctuation whose t is its column `at`.

    With `per_key` it is one for the key in its row, in columns that are named as the plan's keys.
    """
    if source is None or isinstance(source, str):
        raise SpecError(f"`source` ({source!r}) must be another stream. Give a DataFrame, then its column for `at`.")
    return External(column("at", at), flag("per_key", per_key), source)


def punctuation(value: object) -> Punctuation:
    """Refuse what is no punctuation."""
    if isinstance(value, (InBand, SlackTime, SlackRows, OrderedPer, Scheduled, Watermark, External)):
        return value
    raise SpecError(
        f"`punctuation` ({value!r}) does not say how it is known that rows have come. Give in_band, slack, "
        'ordered_per, schedule, watermark or external, such as slack("10 seconds").'
    )


class Ordered(Protocol):
    """A plan, or a filling: rows of keys, and how it is known how far they have come."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""

    @property
    def ordered_by(self) -> str:
        """The progressing attribute."""

    @property
    def punctuation(self) -> Punctuation | None:
        """What is promised of the rows."""


def per_key(plan: Ordered) -> bool:
    """Whether each key has a progress of its own."""
    match plan.punctuation:
        case InBand() | External():
            return plan.punctuation.per_key
        case OrderedPer(sources):
            return set(sources) == set(plan.keys)
        case _:
            return False


def check_promises(plan: Ordered) -> None:
    """Refuse a punctuation that does not fit the keys of what it speaks of."""
    match plan.punctuation:
        case InBand(per_key=True) | External(per_key=True) if not plan.keys:
            raise SpecError(
                "`per_key` (True) promises for one key at a time, and the plan has no keys. "
                'Add .by("column"), or leave `per_key` out.'
            )
        case OrderedPer() as given if per_key(plan):
            for name in ("idle_after", "expect", "ahead_limit"):
                value = getattr(given, name)
                if value is not None:
                    raise SpecError(
                        f"`{name}` ({value}): each key is a source by itself, so none waits for another. "
                        f"Leave `{name}` out, or name sources that keys share."
                    )


def check_punctuation(plan: PlanSpec) -> None:
    """Refuse a punctuation that does not fit the rest of its plan."""
    check_promises(plan)
    match plan.punctuation:
        case Scheduled(give_up_after):
            due = plan.scheme.schedule
            if due is None:
                raise SpecError(
                    f"`give_up_after` ({give_up_after}) gives up expected readings, and the scheme expects none. "
                    "Add `expect_every` to it, or use slack instead of schedule."
                )
            if not same_kind(give_up_after, due.every):
                raise SpecError(
                    f"`give_up_after` ({give_up_after}) and `expect_every` ({due.every}) must be of one kind. "
                    "Write both as `at` is measured."
                )
