"""Plans that cannot be: every refusal of a builder, word for word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import panewise as pw
from panewise.spec.aggregates import aggregates

READS = 'a duration reads like "2 minutes", "1 hour 30 minutes" or "250 ms"'
UNITS = "Units: microsecond, millisecond, second, minute, hour, day, week."
POSITIVE = "must be more than zero. Give a positive amount, or leave"
FUNCTIONS = (
    "Functions: approx_count_distinct, approx_percentile, avg, count, first, last, max, median, min, percentile, "
    "stddev, sum, variance."
)
FRAMING = "Functions: avg, count, max, min, range, stddev, sum."
COLUMN = 'must be SQL text: a plan holds no Spark Column. Write it as a string, such as "speed > 30".'
CUSTOM = "Give a class with values, cells, open, update and close (see CustomScheme)."

threshold, delta, boundary, aggregate, trend, session, custom = (
    pw.threshold_frames,
    pw.delta_frames,
    pw.boundary_frames,
    pw.aggregate_frames,
    pw.trend_frames,
    pw.session_frames,
    pw.custom_frames,
)


class Scheme:
    values: Any = ("v",)
    cells: Any = 1

    @staticmethod
    def open(state, row):
        return True

    @staticmethod
    def update(state, row):
        pass

    @staticmethod
    def close(state, row):
        return False


class Valueless(Scheme):
    values = "v"


class Cellless(Scheme):
    cells = True


class Endless:
    values = ("v",)
    cells = 0

    @staticmethod
    def open(state, row):
        return True

    @staticmethod
    def update(state, row):
        pass


CASES: list[tuple[Callable[[], object], str]] = [
    # ---- amounts
    (lambda: threshold("ok", min_duration="0 seconds"), f"`min_duration` (0 seconds) {POSITIVE} `min_duration` out."),
    (lambda: threshold("ok", min_duration="-2 minutes"), f"`min_duration` (-2 minutes) {POSITIVE} `min_duration` out."),
    (lambda: threshold("ok", max_duration=0), f"`max_duration` (0) {POSITIVE} `max_duration` out."),
    (lambda: threshold("ok", max_duration=-1.5), f"`max_duration` (-1.5) {POSITIVE} `max_duration` out."),
    (lambda: threshold("ok", expect_every=timedelta(0)), f"`expect_every` (0:00:00) {POSITIVE} `expect_every` out."),
    (lambda: session("0 s"), f"`gap` (0 s) {POSITIVE} `gap` out."),
    (lambda: session(float("nan")), f"`gap` (nan) {POSITIVE} `gap` out."),
    (lambda: delta({"speed": -5}), f"`amounts[speed]` (-5) {POSITIVE} `amounts[speed]` out."),
    (lambda: boundary({"x": 0.0}), f"`cells[x]` (0.0) {POSITIVE} `cells[x]` out."),
    (lambda: session("2 fortnights"), f"`gap` ('2 fortnights') can't be read: {READS}. {UNITS}"),
    (lambda: session("minutes"), f"`gap` ('minutes') can't be read: {READS}. {UNITS}"),
    (lambda: session("5"), f"`gap` ('5') can't be read: {READS}. {UNITS}"),
    (lambda: session(" "), f"`gap` (' ') can't be read: {READS}. {UNITS}"),
    (lambda: session(""), f"`gap` ('') can't be read: {READS}."),
    (lambda: session("1 month"), "`gap` ('1 month'): a month has no fixed length. Give it in days, hours or less."),
    (
        lambda: threshold("ok", max_duration="2 years"),
        "`max_duration` ('2 years'): a year has no fixed length. Give it in days, hours or less.",
    ),
    (
        lambda: threshold("ok", min_duration=True),
        "`min_duration` (True) must be a length of time or a number. "
        'Give text like "2 minutes", a timedelta, or a number where `at` is a number.',
    ),
    # ---- limits
    (
        lambda: threshold("ok", min_duration="2 hours", max_duration="90 minutes"),
        "`min_duration` (2 hours) can't be more than `max_duration` (90 minutes); "
        "no segment could be both. Lower the one or raise the other.",
    ),
    (
        lambda: delta({"v": 1}, min_duration=5, max_duration=4.5),
        "`min_duration` (5) can't be more than `max_duration` (4.5); "
        "no segment could be both. Lower the one or raise the other.",
    ),
    (
        lambda: trend("v", "rising", min_duration="5 s", max_duration=9),
        "`min_duration` (5 seconds) and `max_duration` (9) must be of one kind: "
        "both lengths of time or both numbers. Write both as `at` is measured.",
    ),
    (
        lambda: session(5, min_rows=3, max_rows=2),
        "`min_rows` (3) can't be more than `max_rows` (2); no segment could be both. Lower the one or raise the other.",
    ),
    *(
        (
            lambda given=given: boundary({"x": 1}, min_rows=given),
            f"`min_rows` ({given!r}) must be a whole number of rows, at least 1. Give 1 or more, or leave it out.",
        )
        for given in (0, -1, 2.0, "2", True)
    ),
    # ---- schedules
    (
        lambda: threshold("ok", jitter="2 s"),
        "`jitter` ('2 s') needs a schedule: without `expect_every` no reading is missing. Add `expect_every`.",
    ),
    (
        lambda: delta({"v": 1}, missing="breaks"),
        "`missing` ('breaks') needs a schedule: without `expect_every` no reading is missing. Add `expect_every`.",
    ),
    (
        lambda: threshold("ok", expect_every="20 s", jitter=3),
        "`jitter` (3) and `expect_every` (20 seconds) must be of one kind. Write both as `at` is measured.",
    ),
    (
        lambda: threshold("ok", expect_every=20, jitter=10),
        "`jitter` (10) must be less than half of `expect_every` (20); "
        "otherwise a late reading could pass for the next one. Lower `jitter`.",
    ),
    (
        lambda: threshold("ok", expect_every=1, missing="ignored"),
        '`missing` (\'ignored\') must be one of "breaks", "satisfies", "bridged". '
        "Choose one of these, or leave `missing` out.",
    ),
    (
        lambda: delta({"v": 1}, expect_every=1, missing="bridged"),
        '`missing` (\'bridged\') must be one of "ignored", "breaks". Choose one of these, or leave `missing` out.',
    ),
    (
        lambda: trend("v", "rising", expect_every=1, missing="satisfies"),
        '`missing` (\'satisfies\') must be one of "breaks", "bridged". Choose one of these, or leave `missing` out.',
    ),
    (
        lambda: threshold("ok", expect_every=1, missing="satisfies", nulls="invisible"),
        '`missing` ("satisfies") can\'t be combined with `nulls` ("invisible"): a null reading would be both '
        'there and missing. Use nulls="breaks", or missing="bridged".',
    ),
    # ---- words and flags
    (
        lambda: threshold("ok", nulls="skip"),
        '`nulls` (\'skip\') must be one of "breaks", "invisible". Choose one of these, or leave `nulls` out.',
    ),
    (
        lambda: threshold("ok", extent="open"),
        '`extent` (\'open\') must be one of "observed", "held", "possible". '
        "Choose one of these, or leave `extent` out.",
    ),
    (
        lambda: delta({"v": 1}, against="last"),
        '`against` (\'last\') must be one of "range", "first". Choose one of these, or leave `against` out.',
    ),
    (
        lambda: delta({"v": 1}, closing="both"),
        '`closing` (\'both\') must be one of "exclude", "include". Choose one of these, or leave `closing` out.',
    ),
    (
        lambda: trend("v", "up"),
        '`direction` (\'up\') must be one of "rising", "falling", "steady". '
        "Choose one of these, or leave `direction` out.",
    ),
    (
        lambda: threshold("ok", gaps="yes"),
        "`gaps` ('yes') must be True or False. Give one of these, or leave `gaps` out.",
    ),
    (
        lambda: session(5, longest=1),
        "`longest` (1) must be True or False. Give one of these, or leave `longest` out.",
    ),
    # ---- what does not go together
    (
        lambda: threshold(),
        "`open` (None) and `close` (None) come together: a frame opens on the one and ends on the other. "
        "Give both, or a single condition.",
    ),
    (
        lambda: threshold(open="a"),
        "`open` ('a') and `close` (None) come together: a frame opens on the one and ends on the other. "
        "Give both, or a single condition.",
    ),
    (
        lambda: threshold("a", close="b"),
        "`condition` ('a') can't be combined with `open` and `close`: a frame has one or the other. "
        "Give a condition, or both open and close.",
    ),
    (
        lambda: threshold("a", gaps=True, longest=True),
        "`longest` (True) reports one frame a key and can't be combined with `gaps`. Leave one out.",
    ),
    (
        lambda: delta({"v": 1}, closing="include", remainder=True, longest=True),
        "`longest` (True) reports one frame a key and can't be combined with `remainder`. Leave one out.",
    ),
    *(
        (
            make,
            '`remainder` (True) reports a minimal frame that never completed; with closing="exclude" every frame is '
            'complete as it is. Use closing="include", or leave `remainder` out.',
        )
        for make in (
            lambda: delta({"v": 1}, remainder=True),
            lambda: aggregate("sum(v)", stays_below=3, remainder=True),
            lambda: custom(Scheme, remainder=True),
        )
    ),
    (
        lambda: aggregate("sum(v)", reaches=3, remainder=True, overlap="saturated"),
        "`remainder` (True) can't be combined with `overlap` ('saturated'): every row starts a frame, and the last "
        "ones never complete. Leave one out.",
    ),
    (
        lambda: delta({"v": 1}, on_overlap="drop"),
        "`on_overlap` ('drop') says what an explicit start does inside an open frame. Add `starts`.",
    ),
    (
        lambda: delta({"v": 1}, overlap="saturated", starts="go"),
        "`overlap` ('saturated') takes every row as a start, `starts` ('go') only some. "
        'Leave one out; `on_overlap="continue"` lets explicit starts overlap.',
    ),
    (
        lambda: delta({"v": 1}, overlap="all"),
        "`overlap` ('all') must be one of \"saturated\". Choose one of these, or leave `overlap` out.",
    ),
    (
        lambda: delta({"v": 1}, starts="go", on_overlap="merge"),
        '`on_overlap` (\'merge\') must be one of "close", "drop", "continue". '
        "Choose one of these, or leave `on_overlap` out.",
    ),
    # ---- SQL texts
    (lambda: threshold(3), f"`condition` (3) {COLUMN}"),
    (lambda: threshold("  "), f"`condition` ('  ') {COLUMN}"),
    (lambda: threshold(open="a", close=1), f"`close` (1) {COLUMN}"),
    (lambda: trend(None, "rising"), f"`value` (None) {COLUMN}"),
    (lambda: delta({3: 1}), f"`amounts` (3) {COLUMN}"),
    (lambda: delta({"v": 1}, starts=True), f"`starts` (True) {COLUMN}"),
    # ---- delta and boundary
    (lambda: delta({}), '`amounts` ({}) must map at least one SQL expression to an amount. Write {"speed": 5}.'),
    (
        lambda: delta("speed"),
        "`amounts` ('speed') must map at least one SQL expression to an amount. Write {\"speed\": 5}.",
    ),
    (lambda: delta({"v": 1, " v": 2}), "`amounts` ('v') is given twice. Name each expression once."),
    (
        lambda: boundary({"x": []}),
        "`cells[x]` ([]) must be ascending breakpoints, at least one. Sort them and drop repeats.",
    ),
    (
        lambda: boundary({"x": [1, 1]}),
        "`cells[x]` ([1, 1]) must be ascending breakpoints, at least one. Sort them and drop repeats.",
    ),
    (lambda: boundary({"x": [1, "2"]}), "`cells[x]` ('2') must be a finite number. Give a number."),
    # ---- aggregate
    (
        lambda: aggregate("sum(v)"),
        "`reaches` (None) and `stays_below` (None): a frame has exactly one bound. Give one of them.",
    ),
    (
        lambda: aggregate("sum(v)", reaches=1, stays_below=2),
        "`reaches` (1) and `stays_below` (2): a frame has exactly one bound. Give one of them.",
    ),
    (
        lambda: aggregate("sum(v)", stays_below=2, closing="include"),
        '`stays_below` (2) leaves the breaking row out and can\'t have closing="include". Use `reaches`.',
    ),
    (lambda: aggregate("sum(v)", reaches="2"), "`reaches` ('2') must be a finite number. Give a number."),
    (
        lambda: aggregate("sum(v)", stays_below=float("inf")),
        "`stays_below` (inf) must be a finite number. Give a number.",
    ),
    (lambda: aggregate("first(v)", reaches=2), f"`aggregate` ('first(v)'): first is not an aggregate here. {FRAMING}"),
    (
        lambda: aggregate("volume", reaches=2),
        f"`aggregate` ('volume') must be one aggregate call such as \"sum(volume)\". {FRAMING}",
    ),
    # ---- custom
    (lambda: custom(3), f"`scheme` (3) can't frame: it is not a class. {CUSTOM}"),
    (lambda: custom(Endless), f"`scheme` ({Endless!r}) can't frame: it has no `close`. {CUSTOM}"),
    (
        lambda: custom(Valueless),
        f"`scheme` ({Valueless!r}) can't frame: `values` must be a tuple of SQL texts. {CUSTOM}",
    ),
    (lambda: custom(Cellless), f"`scheme` ({Cellless!r}) can't frame: `cells` must be a whole number. {CUSTOM}"),
    # ---- the order of rows
    (lambda: threshold("ok").by("a", "b", "a"), "`by` ('a') is given twice. Name each column once."),
    (lambda: threshold("ok").by(3), "`by` (3) must be the name of a column. Give it as a string."),
    (lambda: threshold("ok").at(""), "`at` ('') must be the name of a column. Give it as a string."),
    (
        lambda: threshold("ok").at("t", tie_break=("a", None)),
        "`tie_break` (None) must be the name of a column. Give it as a string.",
    ),
    (
        lambda: threshold("ok").at("t", ties="any"),
        '`ties` (\'any\') must be one of "all", "first", "last", "error". Choose one of these, or leave `ties` out.',
    ),
    (
        lambda: threshold("ok").by("k").ordered_by,
        '`at` is not set: a plan needs the column that orders its rows. Add .at("column").',
    ),
    # ---- agg
    (
        lambda: aggregates({"x": "mode(v)"}),
        f"`agg[x]` ('mode(v)'): mode is not an aggregate here. {FUNCTIONS}",
    ),
    (
        lambda: aggregates({"x": "sum(v) + 1"}),
        f"`agg[x]` ('sum(v) + 1') must be one aggregate call such as \"sum(volume)\". {FUNCTIONS}",
    ),
    (
        lambda: aggregates({"x": "sum(v) / count(*)"}),
        f"`agg[x]` ('sum(v) / count(*)') must be one aggregate call such as \"sum(volume)\". {FUNCTIONS}",
    ),
    (
        lambda: aggregates({"x": "sum()"}),
        f"`agg[x]` ('sum()') must be one aggregate call such as \"sum(volume)\". {FUNCTIONS}",
    ),
    (lambda: aggregates({"x": "sum(*)"}), "`agg[x]` ('sum(*)'): only count takes *. Name a column or an expression."),
    (lambda: aggregates({"x": 3}), f"`agg[x]` (3) {COLUMN.replace('speed > 30', 'sum(volume)')}"),
    *(
        (
            lambda name=name: aggregates({name: "count(*)"}),
            f"`agg` ({name!r}) can't name a result: segment, rows, status, gap, part, timing are the segment's own. "
            "Choose another name.",
        )
        for name in ("segment", "rows", "status", "gap", "part", "timing", "", 3)
    ),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_plans_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pw.SpecError) as error:
        make()
    assert str(error.value) == message
    assert isinstance(error.value, ValueError)


def test_what_is_just_allowed() -> None:
    """The other side of each bound."""
    threshold("ok", min_rows=2, max_rows=2, min_duration="60 s", max_duration="1 minute")
    threshold("ok", expect_every=20, jitter=9.99, missing="bridged", nulls="invisible")
    boundary({"x": [1]})
    delta({"v": 1}, starts="go", on_overlap="continue")
    aggregate("sum(v)", reaches=0, closing="exclude")
    custom(Scheme, closing="include", remainder=True)
    aggregates({"n": "COUNT( * )", "x": "sum((v + 1) * 2)"})
