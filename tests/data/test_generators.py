"""The generators: shape, order, the same rows however they are cut, and the properties they promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import panewise.data
from panewise.data import dye, router, soccer, traffic
from panewise.errors import SpecError

SMALL: list[Any] = [
    pytest.param(router, {"routers": 70}, ["router"], "rpt_time", id="router"),
    pytest.param(traffic, {"sensors": 60}, ["sensor"], "ts", id="traffic"),
    pytest.param(dye, {"tows": 3}, ["tow"], "ts", id="dye"),
    pytest.param(soccer, {}, ["object_id"], "ts", id="soccer"),
]
ROWS = 150_011


def read(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.iterdir())]).combine_chunks()


@pytest.mark.parametrize(("generator", "options", "by", "at"), SMALL)
def test_rows_do_not_depend_on_files(
    generator: Any, options: dict[str, int], by: list[str], at: str, tmp_path: Path
) -> None:
    expected = generator.table(ROWS, seed=5, **options)
    for files in (1, 7):
        folder = tmp_path / str(files)
        generator.write(folder, ROWS, seed=5, files=files, **options)
        assert len(list(folder.iterdir())) == files
        assert read(folder).equals(expected)


@pytest.mark.parametrize(("generator", "options", "by", "at"), SMALL)
def test_shape(generator: Any, options: dict[str, int], by: list[str], at: str) -> None:
    table = generator.table(ROWS, seed=5, **options)
    assert table.num_rows == ROWS
    assert table.schema.equals(generator.SCHEMA)
    assert table.schema.field(at).type == pa.timestamp("us", tz="UTC")
    assert table.select([*by, at]).group_by([*by, at]).aggregate([]).num_rows == ROWS
    assert np.all(np.diff(table[at].to_numpy()) >= np.timedelta64(0))
    assert [n for n in table.column_names if table[n].null_count] == (["speed"] if generator is traffic else [])


@pytest.mark.parametrize(("generator", "options", "by", "at"), SMALL)
def test_seeds_differ(generator: Any, options: dict[str, int], by: list[str], at: str) -> None:
    tables = [generator.table(5_000, seed=seed, **options) for seed in (5, 5, 6)]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


@pytest.mark.parametrize(("generator", "options", "by", "at"), [p for p in SMALL if p.id != "dye"])
def test_a_short_stream_begins_a_long_one(generator: Any, options: dict[str, int], by: list[str], at: str) -> None:
    assert generator.table(ROWS, seed=5, **options).slice(0, 70_003).equals(generator.table(70_003, seed=5, **options))


def test_progress_and_row_groups(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    traffic.write(tmp_path / "t", 2_600_000, files=1, progress=lambda done, rows: seen.append((done, rows)))
    groups = pq.ParquetFile(tmp_path / "t" / "part-00000.parquet").metadata
    assert [groups.row_group(n).num_rows for n in range(3)] == [866_666, 866_667, 866_667]
    assert groups.row_group(0).column(0).compression == "ZSTD"
    assert seen == [(866_666, 2_600_000), (1_733_333, 2_600_000), (2_600_000, 2_600_000)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t"]


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        router.write(tmp_path / "r", 1_000, routers=10, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_errors(tmp_path: Path) -> None:
    router.write(tmp_path / "r", 100, routers=10, files=1)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: router.write(tmp_path / "r", 100), r"`path` \(.*r'\) is not empty, .* Give a new folder\."),
        (lambda: router.write(tmp_path / "s", 3, files=4), r"`files` \(4\) can't be more than `rows` \(3\)"),
        (lambda: router.write(tmp_path / "s", 0), r"`rows` \(0\) must be a whole number of at least 1\."),
        (lambda: traffic.table(10, sensors=0), r"`sensors` \(0\) must be a whole number of at least 1\."),
        (lambda: dye.table(10, tows=-2), r"`tows` \(-2\) must be a whole number"),
        (lambda: soccer.table(10, seed=-1), r"`seed` \(-1\) must be a whole number of at least 0\."),
    ]
    for call, message in cases:
        with pytest.raises(SpecError, match=message):
            call()


def runs(above: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of each maximal run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], above.astype(np.int8), [0]])))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.parametrize(
    ("rows", "routers", "seed"), [(200_000, 100, 0), (222_222, 70, 1), (5_000, 1, 2), (99, 100, 3)]
)
def test_router_truth_is_what_a_scan_finds(rows: int, routers: int, seed: int) -> None:
    table = router.table(rows, routers=routers, seed=seed)
    number = np.arange(rows) % routers
    name = table["router"].to_numpy()
    time, loss = table["rpt_time"].to_numpy(), table["drop_pct"].to_numpy()
    packets = table["total_pkts"].to_numpy()
    assert not np.any((loss > 0.2) & (loss < 0.36))
    expected = []
    for one in range(min(routers, rows)):
        own = number == one
        for first, last in runs(loss[own] > router.THRESHOLD):
            total = int(packets[own][first : last + 1].sum())
            expected.append((name[own][0], time[own][first], time[own][last], last - first + 1, total))
    truth = router.truth(rows, routers=routers, seed=seed)
    assert truth.column_names == ["router", "start", "end", "reports", "total_pkts"]
    found = list(zip(*(truth[column].to_numpy() for column in truth.column_names), strict=True))
    assert found == expected


def test_router_has_every_kind_of_episode() -> None:
    truth = router.truth(1_500_000, routers=150)
    reports = truth["reports"].to_numpy()
    start, end = truth["start"].to_numpy(), truth["end"].to_numpy()
    same = truth["router"].to_numpy()[1:] == truth["router"].to_numpy()[:-1]
    apart = (start[1:] - end[:-1])[same]
    assert (reports == 1).sum() > 100
    assert ((reports > 1) & (reports < 13)).sum() > 100
    assert (reports >= 13).sum() > 400
    assert reports.max() > 2 * 360
    assert apart.min() == np.timedelta64(20, "s")
    assert (apart == apart.min()).sum() > 50
    loss = router.table(1_000_000, routers=1_000)["drop_pct"].to_numpy()
    assert 0.02 < np.percentile(loss, 1) < np.percentile(loss, 90) < 0.1


def test_traffic_resembles_the_published_proportions() -> None:
    table = traffic.table(7 * 4_320 * 40, sensors=40)
    speed, volume = table["speed"].to_numpy(), table["volume"].to_numpy()
    assert 0.03 < np.mean(speed <= 30) < 0.055
    assert 0.40 < np.mean(speed >= 50) < 0.50
    assert 0.87 < np.mean(speed >= 30) < 0.93
    assert 0.05 < np.mean(np.isnan(speed)) < 0.07
    assert 6 < volume.mean() < 8
    assert np.nanmax(np.abs(speed * 10 - np.round(speed * 10))) < 1e-9
    own = speed.reshape(-1, 40)
    assert 20 < np.mean([last - first + 1 for n in range(40) for first, last in runs(own[:, n] <= 30)]) < 60


def test_traffic_rush_hours_depend_on_direction() -> None:
    speed = traffic.table(5 * 4_320 * 40, sensors=40, outages=False)["speed"].to_numpy().reshape(5, 24, 180, 40)
    by_hour = speed.mean(axis=(0, 2))
    inbound, outbound = by_hour[:, ::2].mean(axis=1), by_hour[:, 1::2].mean(axis=1)
    assert inbound[7] < outbound[7] - 10
    assert outbound[17] < inbound[17] - 10
    assert inbound[2] > 45


def test_traffic_outages_only_hide_speeds() -> None:
    whole, holed = traffic.table(50_000, outages=False), traffic.table(50_000)
    assert whole["speed"].null_count == 0
    known = pc.is_valid(holed["speed"])
    assert holed.filter(known).equals(whole.filter(known))


def test_dye_patches_make_hundreds_to_thousands_of_delta_frames() -> None:
    table = dye.table(400_000)
    depth, density = table["depth_m"].to_numpy(), table["density"].to_numpy()
    assert depth.min() == 5
    assert depth.max() == 60
    assert np.corrcoef(depth, density)[0, 1] > 0.8
    readings = table["fluorescence"].to_pylist()

    def frames(delta: float) -> int:
        count, low, high = 1, readings[0], readings[0]
        for reading in readings:
            low, high = min(low, reading), max(high, reading)
            if high - low >= delta:
                count, low, high = count + 1, reading, reading
        return count

    assert 100 < frames(0.05) < 4_000
    assert 2_000 < frames(0.005) < 15_000


def test_soccer_stays_on_the_pitch_and_within_speed() -> None:
    table = soccer.table(23 * 6_000)
    x, y = (table[name].to_numpy().reshape(-1, soccer.OBJECTS) for name in ("x_m", "y_m"))
    assert np.abs(x).max() <= 52.5
    assert np.abs(y).max() <= 34
    speed = 10 * np.hypot(np.diff(x, axis=0), np.diff(y, axis=0)).max(axis=0)
    assert speed[1:].max() <= 9
    assert speed[0] <= 20
    assert x[:, 1].mean() < -40 < 40 < x[:, 12].mean()


def test_all_is_sorted_and_complete() -> None:
    assert panewise.data.__all__ == sorted(panewise.data.__all__)
    assert all(hasattr(panewise.data, name) for name in panewise.data.__all__)
