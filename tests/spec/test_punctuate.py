"""How progress is known: what each constructor gives, what it refuses, and what travels with a plan."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta

import numpy as np
import pytest

import panewise as pw
from panewise.spec.duration import Duration, amount
from panewise.spec.plan import PlanSpec
from panewise.spec.punctuate import (
    External,
    InBand,
    OrderedPer,
    Punctuation,
    Scheduled,
    SlackRows,
    SlackTime,
    Watermark,
    check_punctuation,
    per_key,
)

SECOND, HOUR = Duration(1_000_000), Duration(3_600_000_000)
STREAM = object()

MADE: list[tuple[Punctuation, Punctuation, tuple[tuple[str, object], ...]]] = [
    (pw.in_band(" kind = 'end' "), InBand("kind = 'end'", False), ()),
    (pw.in_band("done", per_key=True), InBand("done", True), ()),
    (pw.slack("1 second"), SlackTime(SECOND, "generous", (), None), (("slack", SECOND),)),
    (pw.slack(timedelta(seconds=1), late="consistent"), SlackTime(SECOND, "consistent"), (("slack", SECOND),)),
    (pw.slack("0 seconds"), SlackTime(Duration(0)), (("slack", Duration(0)),)),
    (pw.slack(0), SlackTime(0), (("slack", 0),)),
    (pw.slack(2.5), SlackTime(2.5), (("slack", 2.5),)),
    (
        pw.slack("1 s", per="sensor", ahead_limit="1 hour"),
        SlackTime(SECOND, "generous", ("sensor",), HOUR),
        (("slack", SECOND), ("ahead_limit", HOUR)),
    ),
    (
        pw.slack(5, per=["road", "lane"], ahead_limit=9),
        SlackTime(5, "generous", ("road", "lane"), 9),
        (("slack", 5), ("ahead_limit", 9)),
    ),
    (pw.slack(5, per=[]), SlackTime(5), (("slack", 5),)),
    (pw.slack(rows=0), SlackRows(0, "generous"), ()),
    (pw.slack(rows=100_000, late="consistent", per=[]), SlackRows(100_000, "consistent"), ()),
    (pw.ordered_per("sensor"), OrderedPer(("sensor",), None, None, None), ()),
    (
        pw.ordered_per("road", "lane", idle_after="1 hour", expect=3, ahead_limit=5),
        OrderedPer(("road", "lane"), HOUR, 3, 5),
        (("ahead_limit", 5),),
    ),
    (pw.ordered_per("s", idle_after=timedelta(hours=1)), OrderedPer(("s",), HOUR), ()),
    (pw.ordered_per("s", idle_after=HOUR), OrderedPer(("s",), HOUR), ()),
    (pw.schedule(give_up_after="1 hour"), Scheduled(HOUR), (("give_up_after", HOUR),)),
    (pw.schedule(give_up_after=7), Scheduled(7), (("give_up_after", 7),)),
    (pw.watermark(), Watermark(), ()),
    (pw.external(STREAM, "upto"), External("upto", False, STREAM), ()),
    (pw.external(STREAM, "upto", per_key=True), External("upto", True, STREAM), ()),
]


@pytest.mark.parametrize(("made", "expected", "amounts"), MADE, ids=[repr(made) for made, _, _ in MADE])
def test_what_is_made(made: Punctuation, expected: Punctuation, amounts: tuple[tuple[str, object], ...]) -> None:
    assert made == expected
    assert hash(made) == hash(expected)
    assert made.amounts == amounts


@pytest.mark.parametrize("made", [made for made, _, _ in MADE], ids=repr)
def test_it_travels_with_its_plan(made: Punctuation) -> None:
    plan = pw.session_frames(5).at("t", made)
    assert plan.punctuation is made
    assert plan == pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan)
    assert hash(plan) == hash(pickle.loads(pickle.dumps(plan)))


def test_each_is_another() -> None:
    same = [pw.ordered_per("s", idle_after="1 hour"), pw.ordered_per("s", idle_after=timedelta(hours=1))]
    assert len(set(same)) == 1
    distinct = {made for made, _, _ in MADE}
    assert len(distinct) == len({repr(made) for made in distinct}) == len(MADE) - 1


def test_numpy_numbers_become_plain() -> None:
    assert type(pw.slack(rows=np.int64(5)).rows) is int
    assert type(pw.ordered_per("s", expect=np.uint8(5)).expect) is int


def test_none_can_be_changed() -> None:
    for made, _, _ in MADE:
        for field in fields(made):
            with pytest.raises(FrozenInstanceError):
                setattr(made, field.name, "x")


def test_a_pickled_plan_leaves_the_other_stream_behind() -> None:
    told = pw.external(lambda: "what no pickle can hold", "upto", per_key=True)
    again = pickle.loads(pickle.dumps(told))
    assert (again.time, again.per_key, again.source) == ("upto", True, None)
    assert again == told
    assert told.source() == "what no pickle can hold"


def test_the_other_stream_takes_no_part_in_comparisons() -> None:
    one, other = pw.external(object(), "upto"), pw.external(object(), "upto")
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "External(time='upto', per_key=False)"
    assert one != pw.external(one.source, "until")


# ---- what is refused

LENGTH = (
    'must be a length of time or a number. Give text like "2 minutes", a timedelta, or a number where `at` is a number.'
)
READS = (
    'can\'t be read: a duration reads like "2 minutes", "1 hour 30 minutes" or "250 ms". '
    "Units: microsecond, millisecond, second, minute, hour, day, week."
)
POSITIVE = "must be more than zero. Give a positive amount, or leave"
ROWS = (
    "must be a whole number from 0 to 100,000: every shard carries that many times. Give fewer, or an amount of `at`."
)
EXPECT = "must be a whole number of sources, from 1 to 2^63 - 1. Give how many there are, or leave `expect` out."
CLOCK = 'is measured on the clock, whatever `at` is. Give a length of time, such as "30 seconds".'
WHOLE_STREAM = "rows are counted in the whole stream, whichever source they come from."
PER_KEY = "must be True or False. Give one of these, or leave `per_key` out."
NO_PUNCTUATION = (
    "does not say how it is known that rows have come. Give in_band, slack, ordered_per, schedule, watermark or "
    'external, such as slack("10 seconds").'
)

plain = pw.session_frames(5)
loss = pw.threshold_frames("drop > 1", expect_every="20 seconds")

CASES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: pw.in_band(5),
        "`condition` (5) must be SQL text: a plan holds no Spark Column. "
        "Write it as a string, such as \"kind = 'heartbeat'\".",
    ),
    (lambda: pw.in_band("done", per_key="yes"), f"`per_key` ('yes') {PER_KEY}"),
    # ---- slack
    (
        lambda: pw.slack(),
        "`amount` (None) and `rows` (None): slack says how late a row may come, in the one or in the other. "
        'Give one of them, such as slack("10 seconds").',
    ),
    (
        lambda: pw.slack("10 s", rows=5),
        "`amount` (10 s) can't be combined with `rows` (5): slack is measured in the one or in the other. "
        "Leave one out.",
    ),
    (
        lambda: pw.slack(0, rows=0),
        "`amount` (0) can't be combined with `rows` (0): slack is measured in the one or in the other. Leave one out.",
    ),
    (lambda: pw.slack("-1 s"), "`slack` (-1 s) can't be less than zero. Give zero or more, or leave `slack` out."),
    (lambda: pw.slack(-0.5), "`slack` (-0.5) can't be less than zero. Give zero or more, or leave `slack` out."),
    (
        lambda: pw.slack(float("nan")),
        "`slack` (nan) can't be less than zero. Give zero or more, or leave `slack` out.",
    ),
    (lambda: pw.slack(True), f"`slack` (True) {LENGTH}"),
    (lambda: pw.slack("soon"), f"`slack` ('soon') {READS}"),
    (
        lambda: pw.slack(f"{2**63} us"),
        f"`slack` ({2**63} us) is longer than a time can be: 106751991 days, in microseconds of 64 bits. "
        "Give less, or leave `slack` out.",
    ),
    (
        lambda: pw.slack(5, late="lenient"),
        '`late` (\'lenient\') must be one of "generous", "consistent". Choose one of these, or leave `late` out.',
    ),
    (lambda: pw.slack(5, per=7), "`per` (7) must be the name of a column. Give it as a string."),
    (
        lambda: pw.slack(5, per=["a", "a"], ahead_limit=5),
        "`per` ('a') is given twice. Name each column once.",
    ),
    (
        lambda: pw.slack("10 s", ahead_limit="1 hour"),
        "`ahead_limit` (1 hour) needs `per`: a clock can only run ahead of other sources' clocks. "
        "Add `per`, the columns that tell sources apart.",
    ),
    (
        lambda: pw.slack("10 s", per=["road", "lane"]),
        "`per` (road, lane) tells whose clock runs ahead, and without `ahead_limit` each may. "
        "Add `ahead_limit`, or leave `per` out.",
    ),
    (
        lambda: pw.slack("10 s", per="sensor", ahead_limit=5),
        "`ahead_limit` (5) and `slack` (10 seconds) must be of one kind. Write both as `at` is measured.",
    ),
    (
        lambda: pw.slack(5, per="sensor", ahead_limit=0),
        f"`ahead_limit` (0) {POSITIVE} `ahead_limit` out.",
    ),
    (lambda: pw.slack(rows=-1), f"`rows` (-1) {ROWS}"),
    (lambda: pw.slack(rows=100_001), f"`rows` (100001) {ROWS}"),
    (lambda: pw.slack(rows=10**5000), f"`rows` (about 1e5000) {ROWS}"),
    (lambda: pw.slack(rows=2.0), f"`rows` (2.0) {ROWS}"),
    (lambda: pw.slack(rows="2"), f"`rows` ('2') {ROWS}"),
    (lambda: pw.slack(rows=True), f"`rows` (True) {ROWS}"),
    (
        lambda: pw.slack(rows=5, per="sensor"),
        f"`per` (sensor) can't be combined with `rows` (5): {WHOLE_STREAM} Leave `per` out, or give an amount.",
    ),
    (
        lambda: pw.slack(rows=5, ahead_limit="1 hour"),
        f"`ahead_limit` (1 hour) can't be combined with `rows` (5): {WHOLE_STREAM} "
        "Leave `ahead_limit` out, or give an amount.",
    ),
    # ---- ordered_per
    (
        lambda: pw.ordered_per(),
        "`sources` () must name the columns that tell sources apart, at least one. "
        'Write them as ordered_per("sensor").',
    ),
    (
        lambda: pw.ordered_per(["a", "b"]),
        "`sources` (['a', 'b']) must be the name of a column. Give it as a string.",
    ),
    (lambda: pw.ordered_per("a", "a"), "`sources` ('a') is given twice. Name each column once."),
    (lambda: pw.ordered_per("a", idle_after=30), f"`idle_after` (30) {CLOCK}"),
    (lambda: pw.ordered_per("a", idle_after=0.5), f"`idle_after` (0.5) {CLOCK}"),
    (lambda: pw.ordered_per("a", idle_after=True), f"`idle_after` (True) {CLOCK}"),
    (lambda: pw.ordered_per("a", idle_after=["1 s"]), f"`idle_after` (['1 s']) {CLOCK}"),
    (lambda: pw.ordered_per("a", idle_after="0 s"), f"`idle_after` (0 s) {POSITIVE} `idle_after` out."),
    (lambda: pw.ordered_per("a", expect=0), f"`expect` (0) {EXPECT}"),
    (lambda: pw.ordered_per("a", expect=2.0), f"`expect` (2.0) {EXPECT}"),
    (lambda: pw.ordered_per("a", expect=True), f"`expect` (True) {EXPECT}"),
    (lambda: pw.ordered_per("a", expect=2**63), f"`expect` ({2**63}) {EXPECT}"),
    (lambda: pw.ordered_per("a", ahead_limit="0 s"), f"`ahead_limit` (0 s) {POSITIVE} `ahead_limit` out."),
    # ---- schedule, external
    (lambda: pw.schedule(give_up_after=0), f"`give_up_after` (0) {POSITIVE} `give_up_after` out."),
    (lambda: pw.schedule(give_up_after=None), f"`give_up_after` (None) {LENGTH}"),
    (
        lambda: pw.external("upto", STREAM),
        "`source` ('upto') must be another stream. Give a DataFrame, then its column for `at`.",
    ),
    (
        lambda: pw.external(None, "upto"),
        "`source` (None) must be another stream. Give a DataFrame, then its column for `at`.",
    ),
    (lambda: pw.external(STREAM, 5), "`at` (5) must be the name of a column. Give it as a string."),
    (lambda: pw.external(STREAM, "upto", per_key=1), f"`per_key` (1) {PER_KEY}"),
    # ---- in a plan
    (lambda: plain.at("t", "10 seconds"), f"`punctuation` ('10 seconds') {NO_PUNCTUATION}"),
    (lambda: plain.at("t", 5), f"`punctuation` (5) {NO_PUNCTUATION}"),
    (lambda: plain.at("t", InBand), f"`punctuation` ({InBand!r}) {NO_PUNCTUATION}"),
    *(
        (
            lambda told=told: check_punctuation(plain.at("t", told)),
            "`per_key` (True) promises for one key at a time, and the plan has no keys. "
            'Add .by("column"), or leave `per_key` out.',
        )
        for told in (pw.in_band("done", per_key=True), pw.external(STREAM, "upto", per_key=True))
    ),
    (
        lambda: check_punctuation(plain.at("t", pw.schedule(give_up_after=5))),
        "`give_up_after` (5) gives up expected readings, and the scheme expects none. "
        "Add `expect_every` to it, or use slack instead of schedule.",
    ),
    (
        lambda: check_punctuation(loss.at("t", pw.schedule(give_up_after=5))),
        "`give_up_after` (5) and `expect_every` (20 seconds) must be of one kind. Write both as `at` is measured.",
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_what_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pw.SpecError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    "plan",
    [
        plain.at("t"),
        *(plain.by("k").at("t", made) for made, _, _ in MADE if not isinstance(made, Scheduled)),
        plain.at("t", pw.in_band("done")),
        plain.at("t", pw.external(STREAM, "upto")),
        plain.at("t", pw.ordered_per("sensor")),
        loss.at("t", pw.schedule(give_up_after="5 minutes")),
    ],
    ids=repr,
)
def test_what_fits_its_plan(plan: pw.Plan) -> None:
    check_punctuation(plan)


@pytest.mark.parametrize(
    ("keys", "told", "expected"),
    [
        ((), None, False),
        (("k",), None, False),
        (("k",), pw.in_band("done", per_key=True), True),
        (("k",), pw.in_band("done"), False),
        (("k",), pw.external(STREAM, "upto", per_key=True), True),
        (("k",), pw.external(STREAM, "upto"), False),
        (("k",), pw.ordered_per("k"), True),
        (("a", "b"), pw.ordered_per("b", "a"), True),
        (("a", "b"), pw.ordered_per("a"), False),
        (("a",), pw.ordered_per("a", "b"), False),
        ((), pw.ordered_per("a"), False),
        (("k",), pw.slack(5), False),
        (("k",), pw.watermark(), False),
    ],
)
def test_progress_of_each_key(keys: tuple[str, ...], told: Punctuation | None, expected: bool) -> None:
    assert per_key(PlanSpec(plain.scheme, keys, "t", (), "all", told)) is expected


def test_a_plan_has_none_of_its_own() -> None:
    plan = plain.at("t", pw.slack(5), tie_break="n")
    assert plan != plain.at("t", tie_break="n")
    assert plan.at("t").punctuation is None
    assert plan.by("k").punctuation == pw.slack(5)
    assert replace(plan, punctuation=None) == plain.at("t", tie_break="n")


@pytest.mark.parametrize(("given", "expected"), [("0 s", Duration(0)), (0, 0), (0.0, 0.0), ("1 s", SECOND), (3, 3)])
def test_an_amount_that_may_be_zero(given: object, expected: object) -> None:
    found = amount("slack", given, zero=True)
    assert found == expected
    assert type(found) is type(expected)
