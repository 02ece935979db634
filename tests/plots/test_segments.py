"""Pictures of segments: written, shaded where they should be, and refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.colors
import matplotlib.image
import numpy as np
import pyarrow as pa
import pytest

from panewise.errors import InputError
from panewise.plots.segments import COLOURS, draw
from panewise.plots.thin import thin

UTC = pa.timestamp("us", tz="UTC")


def series(kind: pa.DataType, rows: int = 400, keys: int = 1) -> pa.Table:
    number = np.tile(np.arange(rows), keys)
    return pa.table(
        {
            "router": [f"r{n}" for n in np.repeat(np.arange(keys), rows)],
            "at": place(number, kind),
            "loss": np.sin(number / 20.0),
        }
    )


def place(number: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return (
            pa.array(np.asarray(number, np.int64) * 10_000_000 + 1_704_067_200_000_000)
            .cast(pa.timestamp("us"))
            .cast(kind)
        )
    if pa.types.is_date(kind):
        return pa.array(np.asarray(number, np.int32) + 19_723).cast(kind)
    return pa.array(np.asarray(number, np.int64)).cast(kind)


def found(kind: pa.DataType, spans: list[tuple[int, int, str]], router: str = "r0", gap: bool = False) -> pa.Table:
    start, end = (place([span[n] for span in spans], kind) for n in (0, 1))
    ids, bounds = pa.array(range(len(spans)), pa.int64()), pa.array(["[]"] * len(spans), pa.string())
    columns = {
        "router": pa.array([router] * len(spans), pa.string()),
        "segment": pa.StructArray.from_arrays([ids, start, end, bounds], ["id", "start", "end", "bounds"]),
        "rows": [b - a + 1 for a, b, _ in spans],
        "status": pa.array(["final" if status == "gap" else status for _, _, status in spans], pa.string()),
    }
    return pa.table(columns | ({"gap": [status == "gap" for _, _, status in spans]} if gap else {}))


def pixels(path: Path, colour: str) -> np.ndarray:
    """Where the picture has this colour."""
    picture = matplotlib.image.imread(path)[:, :, :3]
    return np.asarray(np.all(np.abs(picture - np.array(matplotlib.colors.to_rgb(colour))) < 0.01, axis=2))


@pytest.mark.parametrize(
    "kind",
    [UTC, pa.timestamp("ms"), pa.timestamp("us", tz="Europe/Berlin"), pa.date32(), pa.int64(), pa.float64()],
    ids=str,
)
def test_every_kind_of_at(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    draw(
        series(kind),
        found(kind, [(100, 200, "final")]),
        key="router",
        at="at",
        value="loss",
        path=str(path),
        threshold=0.5,
    )
    shaded = pixels(path, COLOURS["final"])
    assert shaded.shape == (250, 1100)
    columns = np.flatnonzero(shaded.any(axis=0) & (shaded.sum(axis=0) > 80))
    assert 0.2 < len(columns) / shaded.shape[1] < 0.26
    assert 0.25 < columns[0] / shaded.shape[1] < 0.35
    assert path.stat().st_size > 5_000


def test_every_shade(tmp_path: Path) -> None:
    path = tmp_path / "shades.png"
    spans = [(0, 50, "final"), (50, 100, "gap"), (120, 180, "partial"), (200, 200, "final"), (300, 399, "remainder")]
    draw(series(UTC), found(UTC, spans, gap=True), key="router", at="at", value="loss", path=str(path), title="All")
    for shade in ("final", "gap", "partial"):
        assert pixels(path, COLOURS[shade]).sum() > 3_000, shade
    hatched = pixels(path, "#ffffff")[60:200, 850:1050].mean()
    assert 0.3 < hatched < 0.95
    picture = matplotlib.image.imread(path)[60:200, 540:620, :3]
    single = (picture[:, :, 0] - picture[:, :, 2] > 0.1).mean(axis=0) > 0.5
    assert 2 <= single.sum() <= 5


def test_only_the_shades_that_occur_are_in_the_legend(tmp_path: Path) -> None:
    path = tmp_path / "plain.png"
    draw(series(UTC), found(UTC, []), key="router", at="at", value="loss", path=path)
    assert not any(pixels(path, COLOURS[shade]).any() for shade in ("final", "partial"))


def test_touching_segments_are_told_apart(tmp_path: Path) -> None:
    spans = [(0, 100, "final"), (100, 200, "final"), (200, 399, "final")]
    draw(series(UTC), found(UTC, spans), key="router", at="at", value="loss", path=tmp_path / "p.png")
    strip = pixels(tmp_path / "p.png", COLOURS["final"])[45:170].sum(axis=0) > 60
    assert strip[150:290].mean() > 0.9
    assert strip[350:540].mean() < 0.1
    assert strip[620:1000].mean() > 0.9


def test_a_panel_for_each_key_chosen(tmp_path: Path) -> None:
    one, table = tmp_path / "one.png", series(UTC, keys=12)
    chosen = {"router": ["r3", "r7", "r9"]}
    draw(table, found(UTC, [(100, 200, "final")], "r7"), key=chosen, at="at", value="loss", path=str(one))
    shaded = pixels(one, COLOURS["final"])
    assert shaded.shape == (3 * 220 + 30, 1100)
    rows = np.flatnonzero(shaded.sum(axis=1) > 100)
    assert 220 < rows[0] < rows[-1] < 470
    draw(table, found(UTC, []), key={"router": "r3"}, at="at", value="loss", path=str(one))
    assert pixels(one, COLOURS["final"]).shape == (250, 1100)


def test_no_key_nulls_and_disorder(tmp_path: Path) -> None:
    number = np.arange(50_000)
    loss = np.where((number > 10_000) & (number < 20_000), np.nan, 0.0)
    loss[40_000], loss[45_000] = 1.0, np.inf
    table = pa.table({"at": number, "loss": loss}).take(np.random.default_rng(0).permutation(50_000))
    path = tmp_path / "p.png"
    draw(table, found(pa.int64(), []), key=[], at="at", value="loss", path=path)
    ink = pixels(path, "#1f4e79")[45:180]
    columns = ink.sum(axis=0)
    assert columns[320:440].sum() == 0
    assert columns[860:900].max() > 80
    assert columns[910:1000].max() < 10


def test_dictionary_keys_and_null_keys(tmp_path: Path) -> None:
    table = series(UTC, rows=10, keys=2)
    names = pa.array([None] * 10 + ["r1"] * 10).dictionary_encode()
    draw(
        table.set_column(0, "router", names),
        found(UTC, [(2, 5, "final")], "r1"),
        key="router",
        at="at",
        value="loss",
        path=tmp_path / "p.png",
    )
    assert pixels(tmp_path / "p.png", COLOURS["final"]).sum() > 3_000


def test_one_row_and_other_formats(tmp_path: Path) -> None:
    draw(
        series(UTC, rows=1), found(UTC, [(0, 0, "final")]), key="router", at="at", value="loss", path=tmp_path / "p.svg"
    )
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_settings_are_left_alone(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    draw(series(UTC), found(UTC, []), key="router", at="at", value="loss", path=tmp_path / "p.png")
    assert dict(mpl.rcParams) == before


GOOD: dict[str, Any] = {"key": "router", "at": "at", "value": "loss"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": "los"}, r"`series` has no column 'los'\. Did you mean `loss`\?"),
        ({"at": "zzz"}, r"`series` has no column 'zzz'\. Known: `at`, `loss`, `router`\."),
        ({"key": "ruoter"}, r"`series` has no column 'ruoter'\. Did you mean `router`\?"),
        (
            {"at": "router"},
            r"`at` \('router'\) is of type string, and must be a timestamp, a date or a number\. Cast it\.",
        ),
        ({"value": "router"}, r"`value` \('router'\) is of type string, and must be a number\. Cast it\."),
        ({"key": {"router": "r99"}}, r"`key` \(\{'router': 'r99'\}\) leaves no rows of `series`\."),
        ({"key": {"router": 5}}, r"`key\[router\]` \(5\) is no value of that column: .* Cast it\."),
        (
            {},
            r"`key` \('router'\) gives 9 panels; a picture holds at most 8\. Choose some, such as \{'router': ",
        ),
    ],
)
def test_series_errors(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        draw(series(UTC, keys=9), found(UTC, []), **(GOOD | change), path=str(tmp_path / "p.png"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (found(UTC, []).drop_columns(["router"]), r"`segments` has no column 'router'\."),
        (found(UTC, []).drop_columns(["segment"]), r"`segments` has no column 'segment'\."),
        (
            found(UTC, []).set_column(1, "segment", pa.array([], pa.int64())),
            r"of type int64, without start and end\. Give a result\.",
        ),
        (found(pa.int64(), [(1, 2, "final")]), r"segment\.start of type int64, unlike `at`\. Give the same type\."),
        (found(UTC, [(1, 2, "finl")]), r"`segments` has a status 'finl', which has no shade\. Did you mean `final`\?"),
    ],
)
def test_segments_errors(result: pa.Table, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        draw(series(UTC), result, **GOOD, path=str(tmp_path / "p.png"))


def test_at_that_is_all_null(tmp_path: Path) -> None:
    table = pa.table({"router": ["a"], "at": pa.array([None], UTC), "loss": [1.0]})
    with pytest.raises(InputError, match="`at` is null in every row of `series`"):
        draw(table, found(UTC, []), **GOOD, path=str(tmp_path / "p.png"))


def test_thin_keeps_extremes_gaps_and_direction() -> None:
    x = np.arange(100_000.0)
    y = np.zeros(100_000)
    y[12_345], y[77_777] = 9, -9
    y[50_000:60_000] = np.nan
    few_x, few_y = thin(x, y, 100)
    assert len(few_x) == 200
    assert np.all(np.diff(few_x) >= 0)
    assert few_x[np.nanargmax(few_y)] == pytest.approx(12_345, abs=1_000)
    assert few_x[np.nanargmin(few_y)] == pytest.approx(77_777, abs=1_000)
    assert np.isnan(few_y).sum() == pytest.approx(20, abs=2)
    assert np.all(np.diff(thin(x, -x, 100)[1]) < 0)
    assert len(thin(x[:10], y[:10], 5)[0]) == 10
    same = thin(np.zeros(50), np.arange(50.0), 5)
    assert (same[0].tolist(), same[1].tolist()) == ([0, 0], [0, 49])
