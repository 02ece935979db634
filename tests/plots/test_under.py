"""What fills segments, below the series they were found in: ticks or a line, strong where rows fill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panewise.errors import InputError
from panewise.plots.segments import COLOURS, draw
from panewise.plots.under import FILLING, REACH, Under
from panewise.spec.duration import Duration
from plots.test_segments import UTC, found, pixels, place, series

OTHER = "#b9c4c0"


def rows(kind: pa.DataType, numbers: Any, router: str = "r0") -> pa.Table:
    load = np.asarray(numbers, np.float64) % 7
    return pa.table(
        {"router": pa.array([router] * len(numbers), pa.string()), "sent": place(numbers, kind), "load": load}
    )


def picture(path: Path, under: list[Under], kind: pa.DataType = UTC, keys: int = 1, **options: Any) -> None:
    spans = found(kind, [(100, 200, "final")])
    draw(series(kind, keys=keys), spans, key="router", at="at", value="loss", path=path, under=under, **options)


def strip(path: Path, colour: str, top: int, bottom: int) -> np.ndarray:
    """Where a colour is found between two heights, as shares of the width."""
    there = pixels(path, colour)[top:bottom]
    return np.flatnonzero(there.sum(axis=0) > 5) / there.shape[1]


@pytest.mark.parametrize("kind", [UTC, pa.timestamp("us"), pa.date32(), pa.int64(), pa.float64()], ids=str)
def test_ticks_are_strong_within_a_segment(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    picture(path, [Under(rows(kind, np.arange(20, 400, 20)), "sent", title="messages")], kind)
    shaded = pixels(path, COLOURS["final"])
    assert shaded.shape == (220 + 75 + 30 + 25, 1100)
    # the segment is shaded in both panels
    assert strip(path, COLOURS["final"], 60, 200).min() == pytest.approx(
        strip(path, COLOURS["final"], 265, 290).min(), abs=0.01
    )
    fills, others = strip(path, FILLING, 265, 300), strip(path, OTHER, 265, 300)
    assert 0.28 < fills.min() < fills.max() < 0.58
    assert (others < 0.3).any()
    assert (others > 0.55).any()
    assert not ((others > 0.33) & (others < 0.53)).any()
    assert not pixels(path, REACH).any()


@pytest.mark.parametrize(
    ("kind", "reach", "left", "right"),
    [
        (UTC, (Duration(-500_000_000), Duration(0)), 0.18, 0.54),
        (pa.int64(), (-50, 50), 0.18, 0.66),
        (pa.date32(), (Duration(150 * 86_400_000_000),) * 2, 0.63, 0.88),
    ],
    ids=str,
)
def test_reach_is_shaded_where_it_is_not_the_segment(
    kind: pa.DataType, reach: Any, left: float, right: float, tmp_path: Path
) -> None:
    path = tmp_path / "p.png"
    picture(path, [Under(rows(kind, np.arange(400)), "sent", "load", "load", "m", reach)], kind)
    assert pixels(path, REACH).shape == (220 + 130 + 30 + 25, 1100)
    fills = strip(path, FILLING, 270, 370)
    assert fills.min() == pytest.approx(left, abs=0.04)
    assert fills.max() == pytest.approx(right, abs=0.04)
    reached = strip(path, REACH, 270, 370)
    assert left - 0.04 < reached.min()
    assert reached.max() < right + 0.04
    assert not strip(path, REACH, 45, 200).any()


def test_a_segment_that_is_emptied_reaches_nothing(tmp_path: Path) -> None:
    under = Under(rows(pa.int64(), np.arange(400)), "sent", "load", reach=(80, -80))
    picture(tmp_path / "p.png", [under], pa.int64())
    assert not len(strip(tmp_path / "p.png", FILLING, 270, 370))


def test_a_panel_for_each_source_of_each_key(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    some = [Under(rows(UTC, [150]), "sent"), Under(rows(UTC, np.arange(400), "r1"), "sent", "load")]
    picture(path, some, keys=2, title="Both")
    drawn = pixels(path, FILLING)
    assert drawn.shape == (2 * (220 + 75 + 130) + 30 + 35 + 25, 1100)
    # the first key has one tick; the second has a line, and no segment
    height = np.flatnonzero(drawn[:, 300:700].any(axis=1))
    assert height.min() > 240
    assert height.max() < 350
    assert pixels(path, OTHER)[750:900].sum() > 500


def test_no_rows_nulls_and_many_rows(tmp_path: Path) -> None:
    picture(tmp_path / "none.png", [Under(rows(UTC, []), "sent"), Under(rows(UTC, []), "sent", "load")])
    number = np.arange(200_000) % 400
    many = rows(pa.int64(), number)
    load = pa.array(np.where(number < 150, np.nan, 1.0))
    many = many.set_column(2, "load", load).append_column("none", pa.nulls(len(many), pa.float64()))
    lines = [Under(many, "sent"), Under(many, "sent", "load"), Under(many, "sent", "none")]
    picture(tmp_path / "many.png", lines, pa.int64())
    assert strip(tmp_path / "many.png", FILLING, 265, 300).min() == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize(
    ("under", "message"),
    [
        (Under(rows(UTC, [1]), "snt"), r"^`under` has no column 'snt'\. Did you mean `sent`\?$"),
        (Under(rows(UTC, [1]), "sent", "lod"), r"^`under` has no column 'lod'\. Did you mean `load`\?$"),
        (Under(rows(UTC, [1]).drop_columns("router"), "sent"), r"^`under` has no column 'router'\."),
        (
            Under(rows(UTC, [1]), "sent", "router"),
            r"^`under` has a value \('router'\) of type string, which is no number\. Cast it\.$",
        ),
        (
            Under(rows(pa.int64(), [1]), "sent"),
            r"^`under` has an `at` \('sent'\) of type int64, unlike the series\. Give the same type\.$",
        ),
        (
            Under(rows(UTC, [1]), "sent", reach=(-5, 0)),
            r"^`reach` \(-5\) does not measure an `at` that is a time\. Give one that does\.$",
        ),
    ],
)
def test_errors(under: Under, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        picture(tmp_path / "p.png", [under])
    assert list(tmp_path.iterdir()) == []


def test_a_line_does_not_bridge_what_is_much_longer_than_usual(tmp_path: Path) -> None:
    bursts = [*range(100, 110), *range(150, 160), *range(300, 310)]
    picture(tmp_path / "p.png", [Under(rows(pa.int64(), bursts), "sent", "load")], pa.int64())
    drawn = pixels(tmp_path / "p.png", FILLING)[270:370].any(axis=0) | pixels(tmp_path / "p.png", OTHER)[270:370].any(
        axis=0
    )
    assert drawn[310:360].any()
    assert drawn[440:480].any()
    assert not drawn[365:420].any()
    assert not drawn[500:780].any()
