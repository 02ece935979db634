"""Where prods come from: what is refused, and how job files have it."""

from __future__ import annotations

from typing import Any

import pytest

import panewise as pw
from panewise.local.stream import LocalStream
from panewise.spec.prod import Prods, prods
from panewise.spec.prod_tables import prods_from_value, prods_to_value


@pytest.mark.parametrize("share", [0.25, 0, -0.5, None])
def test_aggressiveness_is_a_share_of_the_slide(share: float | None) -> None:
    assert pw.prodder("10 seconds", share).aggressiveness == share


@pytest.mark.parametrize("share", [1, -1, 2.5, float("nan"), True, "much"])
def test_other_shares_are_refused(share: Any) -> None:
    with pytest.raises(pw.SpecError, match="`aggressiveness`"):
        pw.prodder("10 seconds", share)


def test_slides_are_on_the_clock() -> None:
    with pytest.raises(pw.SpecError, match=r"`every`.*measured on the clock"):
        pw.prodder(10)  # type: ignore[arg-type]  # wrong on purpose


def test_one_of_each_kind() -> None:
    both = prods([pw.prodder("1 minute"), pw.prods_in("ask")])
    assert both == Prods(in_band=pw.prods_in("ask"), prodder=pw.prodder("1 minute"))
    with pytest.raises(pw.SpecError, match="second of its kind"):
        prods([pw.prods_in("a"), pw.prods_in("b")])
    with pytest.raises(pw.SpecError, match="does not say where prods come from"):
        prods("now and then")


@pytest.mark.parametrize(
    "given",
    [
        prods(True),
        prods(pw.prodder("1 minute", 0.25)),
        prods(pw.prodder("1 minute")),
        prods([pw.prodder("1 minute", -0.1), pw.prods_in("kind = 'prod'", per_key=True)]),
        prods(pw.prodder("1 minute", hold_accuracy=0.98)),
        prods(pw.prodder("1 minute", 0.2, hold_accuracy=0.98, bounds=(0.1, 0.5))),
    ],
)
def test_there_and_back(given: Prods) -> None:
    assert prods_from_value("stream.prods", prods_to_value(given)) == given


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"every": "1 minute"}, "`kind` is missing"),
        ({"kind": "proder", "every": "1 minute"}, "Did you mean `prodder`"),
        ({"kind": "prodder"}, "`every` is missing"),
        ({"kind": "prods_from"}, "another stream"),
        ({"kind": "prodder", "every": "1 minute", "slide": 1}, "`slide` in"),
    ],
)
def test_wrong_tables(value: Any, said: str) -> None:
    with pytest.raises(pw.PanewiseError, match=said):
        prods_from_value("stream.prods", value)


def test_a_stream_of_prods_is_not_for_job_files() -> None:
    with pytest.raises(pw.JobError, match="another stream"):
        prods_to_value(prods(pw.prods_from(object())))  # type: ignore[arg-type]  # wrong on purpose


def test_an_autopilot_begins_within_its_bounds() -> None:
    assert pw.prodder("1 minute", 0.9, hold_accuracy=0.95, bounds=(0.1, 0.5)).aggressiveness == 0.5
    assert pw.prodder("1 minute", hold_accuracy=0.95, bounds=(0.1, 0.5)).aggressiveness == 0.25


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hold_accuracy": 1}, r"`hold_accuracy` \(1\) must be a number between 0 and 1"),
        ({"hold_accuracy": "high"}, "`hold_accuracy`"),
        ({"bounds": (0.1, 0.2)}, "`bounds` .* are those of an autopilot"),
        ({"hold_accuracy": 0.9, "bounds": (0.5, 0.1)}, "the lower one first"),
        ({"hold_accuracy": 0.9, "bounds": (-0.1, 0.1)}, "above 0"),
        ({"hold_accuracy": 0.9, "bounds": (0.1, 1.5)}, "between -1 and 1"),
        ({"hold_accuracy": 0.9, "bounds": 0.5}, "two shares"),
    ],
)
def test_an_autopilot_that_holds_nothing(options: Any, said: str) -> None:
    with pytest.raises(pw.SpecError, match=said):
        pw.prodder("1 minute", 0.5, **options)


def test_a_measure_is_a_function() -> None:
    with pytest.raises(pw.SpecError, match=r"`accuracy` \('close'\) must be a function"):
        prods(True, "close")
    with pytest.raises(pw.SpecError, match=r"`accuracy` \(top: 3\)"):
        prods(True, {"top": 3})
    with pytest.raises(pw.SpecError, match="there are none"):
        prods(None, abs)
    with pytest.raises(pw.JobError, match="it is a function"):
        prods_to_value(prods(True, abs))  # type: ignore[arg-type]  # wrong on purpose


def test_what_prods_do_to_a_plan_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The sum of each sensor is an accumulator below the max over sensors, as DESIGN has it."""
    sums = pw.sliding_windows("30 seconds", "10 seconds").by("sensor").at("ts", pw.slack("1 minute"))
    top = pw.tumbling_windows("30 seconds").agg(top="max(total)")
    sums.agg(total="sum(volume)").then(top).explain(prods=pw.prodder("30 seconds", 0.25))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("Prods", "State, plan"))]
    assert told == [
        "Prods          asked for by a person, through the control folder; by the clock, once in every 30 seconds, "
        "25% of it before its end",
        "State, plan 1  accumulator: keeps its state; what is open it tells the next plan for this answer only, and "
        "none of it is merged into the state there; panes are combined for the answer and stay where they are, so "
        "that nothing is counted twice",
        "State, plan 2  topmost: keeps its state; the answer is made from a copy, as if the stream ended here",
    ]


def test_an_autopilot_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    plan = pw.threshold_frames("v > 1").at("ts", pw.slack("1 minute"))
    plan.explain(prods=[pw.prodder("1 minute", hold_accuracy=0.98), pw.prods_in("ask", per_key=True)])
    told = capsys.readouterr().out
    assert "by rows where ask, which are no data, of its key; by the clock, once in every 1 minute, 45% of it" in told
    assert "Autopilot      moves that share between 1% and 90%" in told
    assert "Certain        what is sure to become a segment" in told


def test_an_autopilot_knows_one_plan_only() -> None:
    plan = pw.tumbling_windows("1 minute").at("ts", pw.slack("1 minute")).agg(n="count(*)")
    both = plan.then(pw.tumbling_windows("1 hour").agg(top="max(n)"))
    with pytest.raises(pw.SpecError, match=r"`hold_accuracy` \(0.9\): accuracy is known of the last"):
        LocalStream(both, prods=pw.prodder("1 minute", hold_accuracy=0.9))
