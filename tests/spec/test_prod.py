"""Where prods come from: what is refused, and how job files have it."""

from __future__ import annotations

from typing import Any

import pytest

import panewise as pw
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
        pw.prodder(10)  # type: ignore[arg-type]


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
        prods_to_value(prods(pw.prods_from(object())))  # type: ignore[arg-type]
