"""The experiment on prods, quick: the shapes that were published, and what the command leaves behind."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from panewise.cli.main import app
from panewise.experiments import prodding
from panewise.experiments.prodding.part import Found, Line

LEAST = {("normal, sd 400", "max"): 95.0}
"""Of 19 windows one that misses an outlier weighs more than of 200."""


@pytest.fixture(scope="module")
def parts() -> list[Found]:
    steps: list[tuple[int, int]] = []
    found = [part(True, lambda done, of: steps.append((done, of))) for part in prodding.PARTS]
    assert all(0 < done <= of for done, of in steps)
    assert sum(done == of for done, of in steps) == len(found)
    return found


@pytest.fixture(scope="module")
def lines(parts: list[Found]) -> list[Line]:
    return [line for part in parts for line in part.lines]


def of(lines: Sequence[Line], measure: str, setting: str = "", experiment: str = "") -> list[tuple[float, ...]]:
    found = [
        line.ours
        for line in lines
        if line.measure == measure and line.setting.startswith(setting) and experiment in line.experiment
    ]
    assert found
    return found


def drawn(parts: list[Found], picture: str) -> list[dict[str, np.ndarray]]:
    """Of each panel, the lines by their names."""
    (figure,) = (part.pictures[picture] for part in parts if picture in part.pictures)
    return [{str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines} for axes in figure.axes]


@pytest.mark.parametrize("values", ["uniform", "normal, sd 100", "normal, sd 400"])
@pytest.mark.parametrize("name", ["avg", "max"])
def test_averages_and_maxima_are_near_however_early(lines: list[Line], values: str, name: str) -> None:
    for accuracies in of(lines, f"mean accuracy of {name}", f"{values}, 30 s"):
        assert min(accuracies) > LEAST.get((values, name), 97.0)


def test_averages_are_further_off_the_more_values_scatter(lines: list[Line]) -> None:
    scatter = [of(lines, "mean accuracy of avg", f"normal, sd {sd}, 30 s every 10 s")[0][1] for sd in (100, 400, 1000)]
    assert scatter == sorted(scatter, reverse=True)


def test_sums_and_counts_fall_linearly(parts: list[Found]) -> None:
    panels = drawn(parts, "prodding-mean")
    assert len(panels) == 6
    for panel in panels:
        for name in ("sum", "count"):
            steps = np.diff(panel[name])
            assert steps.mean() == pytest.approx(-10 / 3, abs=0.6)
            assert np.abs(steps - steps.mean()).max() < 1.5


def test_a_busy_operator_is_further_off(lines: list[Line]) -> None:
    prompt, busy = (accuracies[1] for accuracies in of(lines, "mean accuracy of count", "uniform, 30 s"))
    assert busy < prompt


def test_the_worst_is_worse_than_the_mean(lines: list[Line]) -> None:
    for name in ("avg", "max", "sum", "count"):
        (mean, *_), (worst, *_) = (
            of(lines, f"{kind} accuracy of {name}", "normal, sd 400") for kind in ("mean", "worst")
        )
        assert worst < mean


def test_what_is_gained_grows_evenly(parts: list[Found]) -> None:
    (panel,) = drawn(parts, "prodding-gain")
    assert len(panel) == 3
    for gains in panel.values():
        assert np.diff(gains) == pytest.approx(np.diff(gains).mean(), abs=0.05)
        assert np.diff(gains).min() > 0


def test_final_answers_come_when_they_would_have(lines: list[Line]) -> None:
    experiments = {line.experiment for line in lines if line.published} - {"set aside"}
    for experiment in experiments:
        for asked, never in of(lines, "final latency: asked, never asked", experiment=experiment):
            assert asked == never
    assert len(experiments) == 4


def test_delayed_traffic_is_near_what_was_published(lines: list[Line]) -> None:
    found = {line.measure: line.ours[0] for line in lines if line.experiment == "delayed traffic"}
    assert found["final latency"] == pytest.approx(616, abs=2)
    assert found["early latency"] == pytest.approx(568, abs=2)
    assert found["mean accuracy"] == pytest.approx(94.1, abs=1.5)


def test_bursts_are_answered_in_time(lines: list[Line]) -> None:
    for (gain,) in of(lines, "gain", experiment="bursts"):
        assert 1 < gain < 2
    for (accuracy,) in of(lines, "mean accuracy", experiment="bursts"):
        assert accuracy > 95
    for (late,) in of(lines, "windows with an early answer", experiment="bursts"):
        assert 20 < late < 60


def test_an_autopilot_settles_twice(lines: list[Line]) -> None:
    """Within 30 windows, and where it is to."""
    assert len(of(lines, "settled after", experiment="autopilot")) == 2
    for (windows,) in of(lines, "settled after", experiment="autopilot"):
        assert windows <= 30
    for (held,) in of(lines, "mean accuracy from there on", experiment="autopilot"):
        assert held == pytest.approx(95, abs=1)


def test_what_follows_a_burst_is_on_time(lines: list[Line]) -> None:
    (never,), (aside,) = of(lines, "late windows after a burst", experiment="set aside")
    assert (never > 3, aside) == (True, 0)
    (never,), (aside,) = of(lines, "windows with an early answer", experiment="set aside")
    assert aside < never


def test_the_command_shows_a_table_and_leaves_it_with_the_pictures(
    parts: list[Found], lines: list[Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def done(found: Found) -> Any:
        return lambda quick, tell: asked.append(quick) or tell(1, 1) or found

    monkeypatch.setattr(prodding, "PARTS", tuple(done(found) for found in parts))
    out = tmp_path / "new" / "folder"
    result = CliRunner().invoke(app, ["experiment", "prodding", "--quick", "--out", str(out)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert asked == [True] * len(parts)
    names = sorted(name for found in parts for name in found.pictures)
    assert {f"prodding-{name}" for name in ("autopilot", "bursts", "gain", "mean", "set-aside", "worst")} <= set(names)
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"{name}.png" for name in names), "results.csv", "results.md"
    ]  # fmt: skip
    assert all((out / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in names)
    with (out / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["measure"], row["ours"], row["note"]) for row in rows] == [(x.measure, x.shown, x.note) for x in lines]
    markdown = (out / "results.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("| ") for line in markdown) == len(lines) + 1
    printed = result.stdout.splitlines()
    assert printed[0].split() == ["experiment", "setting", "measure", "published", "ours", "note"]
    notes = {line.note for line in lines if line.note}
    assert sum(line.partition(". ")[2] in notes for line in printed) == len(notes)
    assert printed[-1] == f"table and pictures: {out}"


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    result = CliRunner().invoke(app, ["experiment", "prodding", "--out", str(file)])
    assert result.exit_code == 2
    assert result.stderr == f"File exists ({file}).\n"


def test_experiments_are_listed() -> None:
    result = CliRunner().invoke(app, ["experiment"])
    assert "prodding" in result.stdout + result.stderr
