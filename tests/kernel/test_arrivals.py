"""How far an input has come, as it is told to whoever watches."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import panewise as pw
from panewise.kernel.arrivals import Arrivals
from panewise.kernel.progress import Progress
from panewise.kernel.punctuate import Seen

WHOLE = Progress("whole", pa.int64())


@pytest.mark.parametrize(
    ("punctuation", "behind"),
    [(pw.ordered_per("k"), 8), (pw.ordered_per("site"), None), (pw.slack(1), None)],
)
def test_the_key_that_is_furthest_behind(punctuation: pw.Punctuation, behind: int | None) -> None:
    arrivals = Arrivals(pw.threshold_frames("v").by("k").at("t", punctuation), WHOLE)
    assert arrivals.behind is None
    arrivals.grow(4)
    assert arrivals.behind is None
    # the last key has had no row with an `at`
    arrivals.advance(np.array([0, 1, 2, 0]), np.array([12, 9, 30, 10]))
    assert arrivals.behind == behind


def test_a_key_that_is_promised_more_is_no_longer_behind() -> None:
    arrivals = Arrivals(pw.threshold_frames("v").by("k").at("t", pw.ordered_per("k")), WHOLE)
    arrivals.grow(2)
    arrivals.punctuator.take([Seen(WHOLE, until=np.int64(10))])
    arrivals.advance(np.array([0, 1]), np.array([12, 9]))
    assert arrivals.behind == 10


def test_sources_that_idle_hide_none_that_do_not() -> None:
    plan = pw.threshold_frames("v").at("t", pw.ordered_per("site", idle_after="10 seconds"))
    punctuator = Arrivals(plan, WHOLE).punctuator
    silent, active = range(120), range(120, 130)
    for clock, sites in ((0, [*silent, *active]), (6, active), (12, active), (18, active)):
        seen = Seen(WHOLE, clock=clock * 1_000_000)
        ats = np.array([1000 * (site in active) + site + clock for site in sites])
        seen.rows(plan, ats, [pa.array(list(sites))])
        punctuator.take([seen])
    told = json.loads(punctuator.told())
    assert [(one["source"], one["idle"]) for one in told[:11]] == [*((str(n), False) for n in active), ("0", True)]
    assert len(told) == 100
