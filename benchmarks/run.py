"""Every benchmark, one after another, and BENCHMARKS.md with a picture from what they say: `make bench`.

With `--report` nothing is measured: the file is written from figures that there are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import psutil
from matplotlib import pyplot as plt

from panewise.plots.style import BLUE, GREY, ORANGE, RED, STYLE

HERE = Path(__file__).parent
ROOT = HERE.parent
NOTE = ROOT / "out" / "bench" / "figures.jsonl"
PICTURE = ROOT / "docs" / "images" / "benchmarks.png"
RUNS: tuple[tuple[str, ...], ...] = (
    ("frames.py",),
    ("frames.py", "--order", "sensor"),
    ("frames.py", "--order", "none"),
    ("frames.py", "--sensors", "1"),
    ("frames.py", "--sensors", "1000000"),
    ("growth.py",),
    ("streams.py",),
    ("streams.py", "--sensors", "600", "--by-hand", "10", "--at-a-time", "5"),
    ("breakdown.py",),
    ("fill.py",),
    ("windows.py",),
    ("prods_live.py",),
)
SHOWN = {
    "panewise": BLUE, "Polars": ORANGE, "DuckDB": "#7a9e7e", "tumbling 5 minutes": GREY, "Spark SQL": RED,
    "applyInPandas": "#d98a94",
}  # fmt: skip
PACKAGES = ("pyspark", "pyarrow", "numba", "numpy", "pandas", "polars", "duckdb")


def _machine() -> str:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.split(chr(34))
    memory = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}; Python "
        f"{platform.python_version()}, Java {java[1] if len(java) > 1 else '?'}, {packages}."
    )


def _markdown(told: dict[str, Any]) -> str:
    lines = [told["columns"], ["---"] * len(told["columns"]), *told["rows"]]
    return f"## {told['title']}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _picture(told: dict[str, Any]) -> None:
    """Seconds of each who does a job, in bars."""
    jobs: dict[str, dict[str, float]] = {}
    for job, _, who, seconds, *_ in told["rows"]:
        if who in SHOWN:
            jobs.setdefault(job, {})[who] = float(seconds)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
        place, ticks = 0.0, []
        for job, took in jobs.items():
            first = place
            for who in (who for who in SHOWN if who in took):
                axes.barh(place, took[who], 0.85, color=SHOWN[who])
                axes.annotate(f"{took[who]:.1f}", (took[who], place), (3, 0), textcoords="offset points", va="center")
                place += 1
            ticks.append(((first + place - 1) / 2, job))
            place += 0.7
        axes.set_yticks([at for at, _ in ticks], [job for _, job in ticks])
        axes.invert_yaxis()
        axes.set_xlabel("seconds, best of three")
        axes.legend(handles=[mpl.patches.Patch(color=color, label=who) for who, color in SHOWN.items()], frameon=False)
        axes.set_title(told["title"], loc="left")
        figure.savefig(PICTURE)
        plt.close(figure)


def _report() -> None:
    """The last figures of each table."""
    tables = {told["title"]: told for told in map(json.loads, NOTE.read_text(encoding="utf-8").splitlines())}
    frames = next((told for title, told in tables.items() if title.startswith("Frames")), None)
    if frames is not None:
        _picture(frames)
    text = (HERE / "BENCHMARKS.head.md").read_text(encoding="utf-8")
    text = text.replace("{machine}", _machine()).replace("{date}", f"{datetime.now(UTC):%Y-%m-%d}")
    (ROOT / "BENCHMARKS.md").write_text("\n".join([text, *map(_markdown, tables.values())]), encoding="utf-8")


def main() -> int:
    """Run all of them."""
    options = argparse.ArgumentParser()
    options.add_argument("--report", action="store_true", help="measure nothing")
    given = options.parse_args()
    if not given.report:
        NOTE.unlink(missing_ok=True)
        for name, *arguments in RUNS:
            command = [sys.executable, str(HERE / name), *arguments, "--note", str(NOTE)]
            print("$", " ".join([name, *arguments]), flush=True)
            subprocess.run(command, check=True)
    _report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
