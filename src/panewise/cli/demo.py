"""The demo: routers that lose packets, the episodes found by panewise, and the proof that they are the right ones."""

from __future__ import annotations

import shutil
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from panewise.builders import threshold_frames
from panewise.cli.engine import engine
from panewise.cli.run import run
from panewise.cli.show import screen, show
from panewise.cli.steps import counted, step
from panewise.data import router
from panewise.errors import JobError
from panewise.jobs import Job, job_to_toml
from panewise.plots.segments import draw
from panewise.spec.job import FileSink, FileSource, Plot

__all__ = ["demo"]

_MARK = "# Made by `panewise demo`."
_FILES = 8
_PANELS = 3
_WORST = 10
_LEAST = timedelta(minutes=2)
_VIEW = timedelta(hours=3)


def demo(rows: int, routers: int, out: Path, master: str) -> bool:
    """Generate, run, show, check and draw; whether all was found and nothing invented."""
    _clear(out)
    say = screen().print
    say(f"{rows:,} reports of {routers:,} routers, one every ten seconds each.")
    say("Wanted: every period in which a router lost more than 0.3 % of its packets for at least two minutes.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "job.toml").write_text(f"{_MARK}\n", encoding="utf-8")  # from here on the folder is ours
    with counted(f"writing {rows:,} reports of {routers:,} routers") as tell:
        router.write(out / "reports", rows, routers=routers, files=min(_FILES, max(rows, 1)), progress=tell)
    with step("working out the truth"):
        truth = router.truth(rows, routers=routers)
        shown = _telling(truth)
    job = _job(out, shown)
    (out / "job.toml").write_text(
        f"{_MARK} Run it again: panewise run {out.as_posix()}/job.toml\n\n{job_to_toml(job)}", encoding="utf-8"
    )
    with engine(master, {"spark.ui.enabled": "false"}) as spark:
        outcome = run(spark, job)
        found = spark.read.parquet(str(out / "segments")).toArrow()
    say(f"Found: {outcome.summary(job)}")
    if len(found):
        say()
        _worst(found)
        say()
    right = _check(found, truth)
    with step("drawing"):
        _draw(found, shown, out)
    say(f"picture: {out.as_posix()}/loss.png")
    panewise = "panewise" if shutil.which("panewise") else sys.argv[0]
    say(f"job:     {out.as_posix()}/job.toml (now try: {panewise} explain {out.as_posix()}/job.toml)")
    return right


def _clear(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    job = out / "job.toml"
    if not job.is_file() or not job.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        raise JobError(f"`--out` ({str(out)!r}) holds something that no demo made. Choose another folder.")
    for folder in ("reports", "segments"):
        shutil.rmtree(out / folder, ignore_errors=True)
    (out / "loss.png").unlink(missing_ok=True)


def _job(out: Path, shown: list[str]) -> Job:
    """The job, as a user would write it."""
    return Job(
        source=FileSource("parquet", (out / "reports").as_posix()),
        plan=threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router").at("rpt_time"),
        agg=(
            ("avg_drop", "avg(drop_pct)"),
            ("max_drop", "max(drop_pct)"),
            ("packets", "sum(total_pkts)"),
            ("lost", "sum(total_pkts * drop_pct / 100)"),
        ),
        sink=FileSink("parquet", (out / "segments").as_posix(), "overwrite"),
        plot=Plot("drop_pct", (out / "loss.png").as_posix(), tuple(shown), router.THRESHOLD),
    )


def _worst(found: pa.Table) -> None:
    worst = found.sort_by([("lost", "descending"), ("router", "ascending")]).slice(0, _WORST)
    segment = worst["segment"].combine_chunks()
    interval = pa.StructArray.from_arrays([segment.field("start"), segment.field("end")], ["start", "end"])
    columns = {"router": worst["router"], "segment": interval, "reports": worst["rows"]}
    columns |= {"avg %": worst["avg_drop"], "max %": worst["max_drop"], "packets lost": worst["lost"]}
    show(pa.table(columns), f"The {len(worst)} worst of {len(found):,} episodes, by packets lost")


def _check(found: pa.Table, truth: pa.Table) -> bool:
    """Compare all that was found with all that was put in."""
    segment = found["segment"].combine_chunks()
    ours = [found["router"], segment.field("start"), segment.field("end"), found["rows"], found["packets"]]
    long = truth.filter(pc.greater_equal(_length(truth), _LEAST))
    theirs = [long[name] for name in ("router", "start", "end", "reports", "total_pkts")]
    have, want = (set(zip(*(c.to_pylist() for c in columns), strict=True)) for columns in (ours, theirs))
    text = f"checked against the known truth: {len(want):,} episodes"
    if have == want and len(found) == len(long):
        screen().print(f"{text}, all found, none invented", style="green")
        return True
    screen().print(f"{text}, {len(want - have):,} not found, {len(have - want):,} invented", style="bold red")
    return False


def _length(episodes: pa.Table) -> pa.ChunkedArray:
    return pc.subtract(episodes["end"], episodes["start"])


def _telling(truth: pa.Table) -> list[str]:
    """Routers whose first hours tell most: episodes that start and end in view, and spikes that do not count."""
    if not len(truth):
        return []
    names = truth["router"].combine_chunks().dictionary_encode()
    code = np.asarray(names.indices)
    start, end = (truth[name].to_numpy() for name in ("start", "end"))
    first = start.min()
    view = np.timedelta64(_VIEW)
    least = np.timedelta64(_LEAST)
    inside = (start > first) & (end < min(first + view, end.max()))
    long, size = (end - start) >= least, len(names.dictionary)
    counts = np.bincount(code, inside & long, size)
    spikes = np.bincount(code, inside & ~long, size)
    covered = np.bincount(code, np.where(inside, (end - start) / view, 0), size)
    score = np.minimum(counts, 2) + np.minimum(spikes, 2)
    order = np.lexsort((np.abs(covered - 0.25), -score))[:_PANELS]
    return sorted(names.dictionary.take(pa.array(order)).to_pylist())


def _draw(found: pa.Table, shown: list[str], out: Path) -> None:
    """The first hours of the routers chosen."""
    series = pq.read_table(out / "reports", filters=[("router", "in", shown)] if shown else None)
    shown = shown or sorted(series["router"].unique().to_pylist())[:_PANELS]
    until = pc.add(pc.min(series["rpt_time"]), _VIEW)
    series = series.filter(pc.less(series["rpt_time"], until))
    title = "Loss above 0.3 % for at least two minutes"
    draw(
        series,
        found,
        key={"router": shown},
        at="rpt_time",
        value="drop_pct",
        path=out / "loss.png",
        threshold=router.THRESHOLD,
        title=title,
    )
