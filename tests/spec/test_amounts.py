"""Numbers of any kind, and those that nothing can hold; names of results; plans that cannot be changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest

import panewise as pw
from panewise.jobs import plan_from_mapping, plan_to_mapping
from panewise.spec.aggregates import Aggregate, aggregates
from panewise.spec.duration import Duration, amount

LONG = "is longer than a time can be: 106751991 days, in microseconds of 64 bits. Give less, or leave `gap` out."
FINITE = "must be finite, at most 1.8e308. Give less, or leave `gap` out."
OWN = "segment, rows, status, gap, part, timing are the segment's own. Choose another name."

session, threshold, delta, boundary, aggregate = (
    pw.session_frames,
    pw.threshold_frames,
    pw.delta_frames,
    pw.boundary_frames,
    pw.aggregate_frames,
)

CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: session("99999999 weeks"), f"`gap` (99999999 weeks) {LONG}"),
    (lambda: session(f"{2**63} us"), f"`gap` ({2**63} us) {LONG}"),
    (lambda: session(timedelta.max), f"`gap` ({timedelta.max}) {LONG}"),
    (lambda: session(Duration(2**63)), f"`gap` ({Duration(2**63)}) {LONG}"),
    (
        lambda: session("9" * 5000 + " s"),
        f"`gap` ('{'9' * 20}...') has a number of more than 100 digits. Give fewer.",
    ),
    (lambda: session(10**400), f"`gap` (about 1e400) {FINITE}"),
    (lambda: session(10**5000), f"`gap` (about 1e5000) {FINITE}"),
    (lambda: session(float("inf")), f"`gap` (inf) {FINITE}"),
    (lambda: session(np.float64("inf")), f"`gap` (inf) {FINITE}"),
    (
        lambda: delta({"v": float("inf")}),
        "`amounts[v]` (inf) must be finite, at most 1.8e308. Give less, or leave `amounts[v]` out.",
    ),
    (
        lambda: session(float("-inf")),
        "`gap` (-inf) must be more than zero. Give a positive amount, or leave `gap` out.",
    ),
    (
        lambda: session(np.True_),
        "`gap` (np.True_) must be a length of time or a number. "
        'Give text like "2 minutes", a timedelta, or a number where `at` is a number.',
    ),
    (
        lambda: threshold("ok", max_rows=2**70),
        f"`max_rows` ({2**70}) is more rows than 64 bits count: at most 2^63 - 1. Give less, or leave it out.",
    ),
    (
        lambda: threshold("ok", max_rows=np.float64(3)),
        "`max_rows` (np.float64(3.0)) must be a whole number of rows, at least 1. Give 1 or more, or leave it out.",
    ),
    (
        lambda: aggregate("sum(v)", reaches=10**400),
        "`reaches` (about 1e400) must be a finite number. Give a number.",
    ),
    (
        lambda: aggregate("sum(v)", reaches=np.float32("nan")),
        "`reaches` (nan) must be a finite number. Give a number.",
    ),
    (lambda: aggregate("sum(v)", reaches=True), "`reaches` (True) must be a finite number. Give a number."),
    (
        lambda: threshold("ok").at("t", tie_break=5),
        "`tie_break` (5) must be the name of a column. Give it as a string.",
    ),
    # ---- agg
    (
        lambda: aggregates("sum(v)"),
        '`agg` (\'sum(v)\') must map names of results to aggregate calls. Write {"total": "sum(volume)"}.',
    ),
    (
        lambda: aggregates(["sum(v)"]),
        '`agg` ([\'sum(v)\']) must map names of results to aggregate calls. Write {"total": "sum(volume)"}.',
    ),
    (lambda: aggregates({"Rows": "count(*)"}), f"`agg` ('Rows') can't name a result: {OWN}"),
    (
        lambda: aggregates({"total": "sum(v)", "Total": "sum(w)"}),
        "`agg` ('Total') is given twice, but for case. Choose another name for one of them.",
    ),
    (
        lambda: aggregates({"n": "avg(distinct c)"}),
        "`agg[n]` ('avg(distinct c)'): distinct is for counts over a segment's rows. Leave distinct out, or count.",
    ),
    (
        lambda: aggregate("sum(DISTINCT(c))", reaches=3),
        "`aggregate` ('sum(DISTINCT(c))'): distinct is for counts over a segment's rows. Leave distinct out, or count.",
    ),
    (
        lambda: aggregate(3, reaches=3),
        '`aggregate` (3) must be SQL text: a plan holds no Spark Column. Write it as a string, such as "sum(volume)".',
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_what_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pw.SpecError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.int64(5), 5),
        (np.uint8(5), 5),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (Fraction(1, 2), 0.5),
        (2**64, 2**64),
        (1e300, 1e300),
        (f"{2**63 - 1} us", Duration(2**63 - 1)),
    ],
)
def test_numbers_become_plain(given: object, expected: object) -> None:
    found = amount("gap", given)
    assert found == expected
    assert type(found) is type(expected)


def test_plans_of_numpy_numbers_are_written_like_others() -> None:
    given = threshold("ok", min_duration=np.int32(5), min_rows=np.int64(2), max_rows=np.uint16(9))
    assert given == threshold("ok", min_duration=5, min_rows=2, max_rows=9)
    assert plan_from_mapping(plan_to_mapping(given)) == given
    assert boundary({"x": [np.int64(1), np.float32(2.5)], "y": np.float64(0.5)}) == boundary({"x": [1, 2.5], "y": 0.5})
    assert aggregate("sum(v)", reaches=np.int64(3)) == aggregate("sum(v)", reaches=3)


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("count(case when a = ')' then 1 end)", "case when a = ')' then 1 end"),
        ("""first(concat("(", a))""", """concat("(", a)"""),
        ("sum(`odd) name`)", "`odd) name`"),
        (r"count(a = '\'(')", r"a = '\'('"),
        ("count('it''s (')", "'it''s ('"),
        ("count(distinct_values)", "distinct_values"),
        ("count(distinct)", "distinct"),
    ],
)
def test_parentheses_inside_quotes_are_text(text: str, argument: str) -> None:
    assert Aggregate.parse(text).argument == argument


@pytest.mark.parametrize("text", ["sum(a = ')", "sum(a) + b(')')", "sum('(' )) + (a)", "sum(`a)"])
def test_calls_that_do_not_close(text: str) -> None:
    with pytest.raises(pw.SpecError, match="must be one aggregate call"):
        Aggregate.parse(text)


def test_no_aggregates() -> None:
    assert aggregates(None) == aggregates({}) == ()


def test_no_tie_break() -> None:
    assert threshold("ok").at("t", tie_break=None) == threshold("ok").at("t") == threshold("ok").at("t", tie_break=[])
    assert threshold("ok").at("t", tie_break=["a", "b"]).tie_break == ("a", "b")


def test_a_plan_cannot_be_changed() -> None:
    plan = threshold("ok").by("k").at("t")
    for name in ("time", "keys", "anything"):
        with pytest.raises(FrozenInstanceError):
            setattr(plan, name, "x")
    with pytest.raises(FrozenInstanceError):
        del plan.time
    same = threshold("ok").by("k").at("t")
    assert plan == same == pickle.loads(pickle.dumps(plan))
    assert len({plan, same}) == 1
    assert plan != same.at("u")
