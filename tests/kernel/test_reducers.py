"""Aggregates that keep values: sketches against the libraries they are made of or after, and runs that overlap."""

from __future__ import annotations

import math
import sys
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

import panewise as pw
from panewise.errors import DataError, SpecError
from panewise.kernel import reducers
from panewise.kernel.reducers import over_runs, reducer_of
from panewise.spec.aggregates import _RESULTS, Aggregate

CALLS = ("count(distinct x)", "percentile(x, 0.3)", "approx_percentile(x, 0.3)", "approx_count_distinct(x)")


def reducer(text: str, kind: pa.DataType | None = None):
    found = reducer_of("a", Aggregate.parse(text), kind or pa.float64())
    assert found is not None
    return found


@given(
    values=st.lists(st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9), min_size=1, max_size=50),
    share=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),
)
def test_percentiles_to_one_percent_are_those_of_ddsketch(values: list[float], share: float) -> None:
    sketch = DDSketch(relative_accuracy=0.01)
    for value in values:
        sketch.add(value)
    mine = reducer(f"approx_percentile(x, {share})")
    (found,) = mine.finish(mine.reduce(np.zeros(len(values), np.int64), pa.array(values), 1)).to_pylist()
    assert math.isclose(found, sketch.get_quantile_value(share), rel_tol=1e-9, abs_tol=1e-12)
    exact = sorted(values)[math.floor(share * (len(values) - 1))]
    assert abs(found - exact) <= 0.01 * abs(exact) * (1 + 1e-9)


@pytest.mark.parametrize("value", [sys.float_info.max, 1.7638e308, 1.7637e308, 1.7e308, sys.float_info.min])
def test_percentiles_at_the_ends_of_real_numbers(value: float) -> None:
    mine = reducer("approx_percentile(x, 0.5)")
    for x in (value, -value):
        (found,) = mine.finish(mine.reduce(np.zeros(1, np.int64), pa.array([x]), 1)).to_pylist()
        assert math.isclose(found, x, rel_tol=0.01 * (1 + 1e-9))


KINDS = [pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"), pa.decimal128(12), pa.time64("us")]
KINDS += [pa.time32("s"), pa.duration("us")]
WIDE = (pa.timestamp("us"), pa.time64("us"), pa.duration("us"))


@pytest.mark.parametrize("count", [10, 300, 20_000])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_many_different_values_are_counted_nearly_and_in_any_order(count: int, kind: pa.DataType) -> None:
    mine = reducer("approx_count_distinct(x)", kind)
    rng = np.random.default_rng(5)
    values = pa.array(np.repeat(np.arange(count), 2).astype(np.int32))
    values = (values.cast(pa.int64()) if kind in WIDE else values).cast(kind)
    found = set()
    for pieces in (1, 2, 7):
        shuffled = values.take(pa.array(rng.permutation(len(values))))
        cut = np.sort(rng.integers(0, pieces, len(values)))
        states = mine.reduce(cut, shuffled, pieces)
        whole = mine.merge(np.zeros(pieces, np.int64), states.take(pa.array(rng.permutation(pieces))), 1)
        found.add(mine.finish(whole)[0].as_py())
    assert len(found) == 1
    assert abs(found.pop() - count) <= 0.05 * count


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["", "a", ""], pa.string()),
        (["", "a", ""], pa.large_string()),
        ([b"", b"a", b""], pa.binary()),
        ([b"", b"a", b""], pa.large_binary()),
        ([b"ab", b"cd", b"ab"], pa.binary(2)),
        ([b"", b""], pa.binary(0)),
    ],
    ids=str,
)
def test_empty_text_and_bytes_are_values_too(values: list[str | bytes], kind: pa.DataType) -> None:
    mine = reducer("approx_count_distinct(x)", kind)
    states = mine.reduce(np.zeros(len(values), np.int64), pa.array(values, kind), 1)
    assert mine.finish(states).to_pylist() == [len(set(values))]


@pytest.mark.parametrize("text", CALLS)
@given(data=st.data())
def test_runs_that_overlap(text: str, data: st.DataObject) -> None:
    """However they are merged, it is what each run by itself gives."""
    mine = reducer(text)
    pieces = data.draw(st.lists(st.lists(st.integers(-5, 5).map(float), max_size=4), min_size=1, max_size=20))
    owner = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    states = mine.reduce(owner, pa.array([x for piece in pieces for x in piece], pa.float64()), len(pieces))
    length = data.draw(st.integers(0, len(pieces)))
    first = np.arange(len(pieces) - length + 1).repeat(data.draw(st.integers(1, 4)))
    with mock.patch.object(reducers, "_FEW", data.draw(st.sampled_from([0, 16]))):
        found = mine.finish(over_runs(mine, states, first, first + length)).to_pylist()
    for i, value in zip(first, found, strict=True):
        rows = [x for piece in pieces[i : i + length] for x in piece]
        (wanted,) = mine.finish(mine.reduce(np.zeros(len(rows), np.int64), pa.array(rows, pa.float64()), 1)).to_pylist()
        assert value == wanted


class Hoarder:
    """Keeps what no checkpoint can."""

    type = "int64"

    def init(self) -> object:
        return {1, 2}

    def update(self, state: set, values: object) -> object:
        return state

    def merge(self, state: set, other: set) -> object:
        return state | other

    def finish(self, state: set) -> int:
        return len(state)


def test_states_that_cannot_be_kept() -> None:
    plan = pw.tumbling_windows(10).at("t").agg(n=pw.custom_aggregate(Hoarder, "t"))
    with pytest.raises(DataError, match=r"`agg\[n\]`: Hoarder keeps a state that can't be written as JSON"):
        pw.segments_local(plan, pa.table({"t": [1]}))


class Mode:
    """The value that comes most often, counted under itself."""

    type = "int64"

    def init(self) -> dict:
        return {}

    def update(self, state: dict, values: np.ndarray) -> dict:
        return {**state, values[0]: len(values)}

    def merge(self, state: dict, other: dict) -> dict:
        return {**state, **other}

    def finish(self, state: dict) -> object:
        return max(state, key=state.get)


@pytest.mark.parametrize(("column", "key"), [("t", r"(np\.int64\()?1\)?"), ("x", r"(np\.float64\()?0\.5\)?")])
def test_dictionaries_whose_keys_are_no_text(column: str, key: str) -> None:
    plan = pw.tumbling_windows(10).at("t").agg(n=pw.custom_aggregate(Mode, column))
    said = (
        rf"`agg\[n\]`: Mode keeps a state that can't be written as JSON \(the key {key} of a dictionary is not text\)"
    )
    with pytest.raises(DataError, match=rf"{said}\. Keep .* whose keys are text\."):
        pw.segments_local(plan, pa.table({"t": [1], "x": [0.5]}))


def test_dictionaries_whose_keys_are_text() -> None:
    plan = pw.tumbling_windows(10).at("t").agg(n=pw.custom_aggregate(type("Words", (Mode,), {"type": "string"}), "s"))
    assert pw.segments_local(plan, pa.table({"t": [1], "s": ["a"]})).column("n").to_pylist() == ["a"]


class Given:
    """The same whatever comes."""

    result: object = None

    def init(self) -> list:
        return []

    def update(self, state: list, values: np.ndarray) -> list:
        return state

    def merge(self, state: list, other: list) -> list:
        return state

    def finish(self, state: list) -> object:
        return self.result


def given_as(result: object, kind: str) -> pa.Table:
    made = type("Given", (Given,), {"result": result, "type": kind})
    plan = pw.tumbling_windows(10).at("t").agg(n=pw.custom_aggregate(made, "t"))
    return pw.segments_local(plan, pa.table({"t": [1]}))


@pytest.mark.parametrize(
    ("result", "kind", "said"),
    [
        (1.5, "int64", "1.5 is not whole"),
        (np.float64(1.5), "int8", "1.5 is not whole"),
        (2**70, "int64", "Python int too large"),
        (math.nan, "int64", "Could not convert nan"),
        ("a", "double", "Could not convert 'a'"),
        (1, "string", "Expected bytes"),
        ({1: 2}, "int64", "the key 1 of a dictionary is not text"),
    ],
)
def test_results_that_are_not_of_the_type(result: object, kind: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        given_as(result, kind)
    before = f"`agg[n]`: Given finishes with what is no {kind}, its `type`: {said}"
    assert str(error.value).startswith(before)
    assert str(error.value).endswith(". Return that or None, or change `type`.")


@pytest.mark.parametrize(("result", "kind"), [(2.0, "int64"), (None, "int64"), (2, "double"), (True, "bool")])
def test_results_of_the_type(result: object, kind: str) -> None:
    assert given_as(result, kind).column("n").to_pylist() == [result]


@pytest.mark.parametrize("kind", ["integer", "", None, pa.int64(), ["int64"]], ids=repr)
def test_types_that_arrow_has_no_name_for(kind: object) -> None:
    with pytest.raises(SpecError) as error:
        pw.custom_aggregate(type("Given", (Given,), {"type": kind}), "t")
    assert f"can't aggregate: its `type` ({kind!r}) is none that Arrow has a name for. Give one" in str(error.value)


def test_types_that_are_taken_are_arrows() -> None:
    assert all(pa.type_for_alias(name) for name in _RESULTS)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("percentile(x)", r"`agg\[a\]` \('percentile\(x\)'\) needs a share from 0 to 1"),
        ("percentile(x, 90)", "needs a share from 0 to 1"),
        ("approx_percentile(x, y)", "needs a share from 0 to 1"),
        ("sum(distinct x)", "distinct is for counts"),
        ("nowhere:Thing(x)", r"`agg\[a\]` \('nowhere:Thing'\) can't be imported"),
        ("collections:Counter(x)", "can't aggregate: it has no `type`"),
    ],
)
def test_calls_that_are_none(call: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        pw.tumbling_windows(10).agg(a=call)
