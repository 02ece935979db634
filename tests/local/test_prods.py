"""Prods in one process: what is asked for, what is remembered, and what a delivery tells."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import panewise as pw
from panewise.kernel.answers import ProdProgress
from panewise.kernel.ledger import KEPT
from panewise.kernel.pack import Packer
from panewise.kernel.prod import Schedule, phase_of
from panewise.kernel.progress import progress_of
from panewise.kernel.windowshard import new_shard
from panewise.local.delivery import deliver, punctuated
from panewise.local.stream import LocalStream, with_control

SUM = {"total": "sum(v)"}


def rows(*given: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"t": pa.array([t for t, _ in given], pa.int64()), "v": pa.array([v for _, v in given], pa.int64())}
    )


def test_a_stream_must_know_that_there_are_prods() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM)
    stream.feed(rows((1, 1)))
    with pytest.raises(pw.SpecError, match=r"`prod`.*`prods=True`"):
        stream.prod()


def test_keys_have_their_names() -> None:
    stream = LocalStream(pw.tumbling_windows(10).by("v").at("t", pw.slack(0)), prods=True)
    stream.feed(rows((1, 1)))
    with pytest.raises(pw.InputError, match=r"`prod` \('w'\)"):
        stream.prod(w=1)


def test_results_of_prods_have_their_own_names() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), {"number": "sum(v)"}, prods=True)
    with pytest.raises(pw.SpecError, match=r"`agg` \('number'\)"):
        stream.feed(rows((1, 1)))


def test_aggregates_may_have_the_names_of_what_is_remembered() -> None:
    names = ("slot", "start", "which", "clock", "share", "a0")
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), dict.fromkeys(names, "sum(v)"), prods=True)
    stream.feed(rows((1, 1)), prod={})
    stream.feed(rows((2, 3)))
    [[told]] = stream.finish().column("early").to_pylist()
    assert told["accuracy"] == dict.fromkeys(names, 0.25)


def test_early_answers_are_told_with_the_final_one() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(100)), {**SUM, "last": "last(v)"}, prods=True)
    stream.feed(rows((1, 6)), clock=10)
    stream.feed(clock=11, prod={})
    stream.feed(rows((2, 2)), clock=12, prod={"until": 10})
    stream.feed(rows((3, -2), (4, None)), clock=20)
    (told,) = stream.feed(final=True, clock=21).to_pylist()
    assert (told["total"], told["last"]) == (6, None)
    first, second = told["early"]
    assert (first["number"], first["seconds"]) == (0, 10.0)
    assert (second["number"], second["seconds"]) == (1, 9.0)
    assert first["accuracy"] == {"total": 1.0, "last": 0.0}
    assert second["accuracy"] == {"total": pytest.approx(1 - 2 / 6), "last": 0.0}


def test_an_uncertain_frame_that_never_comes_is_forgotten() -> None:
    stream = LocalStream(pw.threshold_frames("v > 0", min_rows=2).at("t", pw.slack(2)), SUM, prods=True)
    stream.feed(rows((1, 1), (3, 1)), prod={})
    before = stream.state_bytes
    (told,) = stream.feed(rows((2, 0)), prod={}).to_pylist() or [None]
    assert told is None
    found = stream.feed(rows((9, 0)))
    assert not len(found)
    assert stream.state_bytes < before


def held(stream: LocalStream) -> int:
    """How many early answers wait for their final ones."""
    assert stream._layout is not None
    prodding = new_shard(stream._layout, 1, stream._state[0]).prodding
    assert prodding is not None
    return len(prodding.ledger.held)


def test_an_uncertain_window_that_never_comes_is_forgotten() -> None:
    """By rank, another row ends a window when one comes before it; over frames, a frame is taken back."""
    ranked = LocalStream(pw.slide_by_tuple_windows(10, every=2).at("t", pw.slack(20)), SUM, prods=True)
    assert ranked.feed(rows((5, 1), (12, 1)), prod={}).column("certain").to_pylist() == [False]
    ranked.feed(rows((3, 1)))
    assert held(ranked) == 1
    ranked.feed(rows((50, 1)))
    assert held(ranked) == 0
    frames = pw.threshold_frames("v > 0", min_rows=2).at("t", pw.slack(20))
    over = LocalStream(frames.then(pw.tumbling_windows(10).agg(n="count(*)")), prods=True)
    assert len(over.feed(rows((1, 1), (3, 1)), prod={})) == 1
    over.feed(rows((2, 0), (4, 0)))
    assert held(over._links[-1][1]) == 1
    over.feed(rows((50, 0)))
    assert held(over._links[-1][1]) == 0


def test_segments_that_start_together_have_their_own_early_answers() -> None:
    landmarks = LocalStream(pw.landmark_windows(10).at("t", pw.slack(100)), SUM, prods=True)
    landmarks.feed(rows((3, 4), (14, 2)), prod={})
    landmarks.feed(rows((4, 4)))
    told = landmarks.finish().to_pylist()
    assert [row["total"] for row in told] == [8, 10]
    assert [[each["accuracy"]["total"] for each in row["early"]] for row in told] == [[0.5], [0.6]]
    ties = LocalStream(pw.delta_frames({"v": 5}).at("t", pw.slack(100)), SUM, prods=True)
    ties.feed(rows((2, 10), (2, 20)), prod={})
    ties.feed(rows((3, 20)))
    told = ties.finish().to_pylist()
    assert [row["total"] for row in told] == [10, 40]
    assert [[each["accuracy"]["total"] for each in row["early"]] for row in told] == [[1.0], [0.5]]


def test_an_update_is_not_the_final_answer() -> None:
    plan = pw.threshold_frames("v > 0").at("t", pw.slack(0))
    stream = LocalStream(plan, SUM, prods=True, emit="updates")
    stream.feed(rows((1, 4), (2, 4)), prod={})
    told = stream.feed(rows((3, 8), (4, 0), (5, 0))).to_pylist()
    assert [(row["status"], row["total"], row["early"] is None) for row in told] == [("final", 16, False)]
    assert [each["accuracy"]["total"] for each in told[0]["early"]] == [0.5]


def test_prods_go_through_the_state() -> None:
    """Every micro-batch reads the state anew, so that numbers go on only if they are in it."""
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(100)), SUM, prods=True, shards=2)
    stream.feed(rows((1, 6)))
    assert [stream.prod().column("number").to_pylist() for _ in range(3)] == [[0], [1], [2]]


def test_all_is_counted_and_compared() -> None:
    stream = LocalStream(
        pw.tumbling_windows(10).by("v").at("t", pw.slack(100)), {"n": "count(*)"}, prods=True, shards=4
    )
    assert stream.prods == ProdProgress()
    stream.feed(rows((1, 1), (1, 2), (2, 2)), clock=100)
    assert not len(stream.feed(clock=101, prod={"until": 9}))
    assert stream.prods.unanswered == 1
    stream.feed(clock=102, prod=[{"v": 1}, {"until": 10}, {"v": 7}])
    assert (stream.prods.prods, stream.prods.unanswered, stream.prods.early) == (4, 2, 2)
    stream.feed(rows((3, 2)), clock=104)
    assert stream.prods.accuracy["n"].mean is None
    told = stream.feed(final=True, clock=110).to_pylist()
    assert {(row["v"], row["latency"]) for row in told} == {(1, 10.0), (2, 10.0)}
    prods = stream.prods
    assert (prods.matched, prods.accuracy["n"].worst) == (2, pytest.approx(2 / 3))
    assert prods.accuracy["n"].mean == pytest.approx((1 + 2 / 3) / 2)
    assert (prods.early_latency, prods.final_latency, prods.gain) == (2.0, 10.0, pytest.approx(0.8))
    assert str(prods).splitlines() == [
        "prods: 4 asked, 2 early answers, 2 of them final by now, 2 found nothing to answer",
        "accuracy: n: 83.3%, worst 66.7%",
        "early answers: 2.0 s after the first row, final ones 10.0 s (80.0% gained)",
    ]


def test_latency_runs_from_the_first_row_that_came() -> None:
    """Of frames too, whose rows wait for progress."""
    stream = LocalStream(pw.threshold_frames("v > 0").at("t", pw.slack(10)), SUM, prods=True)
    stream.feed(rows((2, 1)), clock=50)
    stream.feed(rows((1, 1), (3, 0)), clock=60)
    (told,) = stream.feed(clock=61, prod={}).to_pylist()
    assert (told["timing"], told["total"], told["latency"]) == ("early", 2, 11.0)
    (told,) = stream.feed(rows((20, 0)), clock=75).to_pylist()
    assert (told["timing"], told["latency"], told["early"][0]["seconds"]) == ("final", 25.0, 14.0)


def test_a_measure_of_ones_own() -> None:
    """It gets the time between, too; and may be of some aggregates only."""

    def patient(early: np.ndarray, final: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        return np.where(early == final, 1.0, 1 / (1 + seconds))

    plan = pw.tumbling_windows(10).at("t", pw.slack(100))
    for measure in (patient, {"total": patient}):
        stream = LocalStream(plan, {**SUM, "n": "count(*)"}, prods=True, accuracy=measure)
        stream.feed(rows((1, 1)), clock=0, prod={})
        stream.feed(rows((2, 1)), clock=3)
        (told,) = stream.feed(final=True, clock=3).to_pylist()
        wanted = {"total": 0.25, "n": 0.25 if measure is patient else 0.5}
        assert told["early"][0]["accuracy"] == wanted


def test_prods_may_begin_and_end_with_a_restart() -> None:
    """A state that took no note of when rows came goes on without; one that did keeps it."""
    plan = pw.tumbling_windows(10).at("t", pw.slack(100))
    quiet, asked = LocalStream(plan, SUM), LocalStream(plan, SUM, prods=True)
    quiet.feed(rows((1, 1)), clock=1)
    asked.feed(rows((1, 1)), clock=1)
    quiet._state, asked._state = asked._state, quiet._state
    early = asked.feed(rows((2, 2)), clock=2, prod={}).to_pylist()
    assert [(row["total"], row["latency"]) for row in early] == [(3, None)]
    assert asked.finish().column("total").to_pylist() == [3]
    quiet.feed(rows((2, 2)), clock=2)
    assert quiet.finish().column_names == ["segment", "rows", "status", "total"]


def settled(shares: list[float], near: list[float], target: float) -> int:
    """After how many windows the mean accuracy of ten stays within two points of the target."""
    means = np.convolve(near, np.ones(10) / 10, "valid")
    off = np.flatnonzero(np.abs(means - target) > 0.02)
    return 0 if not len(off) else int(off[-1]) + 1


def test_an_autopilot_settles_and_settles_again() -> None:
    """From half of the slide to 95 % of a sum; then rows bunch at the ends of slides, and it has to start later."""
    rng = np.random.default_rng(7)
    plan = pw.tumbling_windows("10 seconds").at("t", pw.slack("0 seconds"))
    stream = LocalStream(plan, SUM, prods=pw.prodder("10 seconds", 0.5, hold_accuracy=0.95))
    shares: list[float] = []
    near: list[float] = []
    for window in range(120):
        places = rng.uniform(0, 10, 400) if window < 60 else 10 * rng.beta(2, 1, 400)
        at = np.sort(places) + 10 * window
        share = stream.prods.aggressiveness
        shares.append(0.5 if share is None else share)
        asked = 10 * window + 10 * (1 - shares[-1])
        for some, clock in ((at[at <= asked], asked), (at[at > asked], 10 * window + 9.999)):
            times = pa.array((some * 1e6).astype(np.int64), pa.timestamp("us"))
            found = stream.feed(pa.table({"t": times, "v": np.ones(len(some), np.int64)}), clock=clock)
            near += [one["accuracy"]["total"] for row in found.to_pylist() for one in row["early"] or ()]
    assert len(near) > 110
    assert settled(shares[:58], near[:58], 0.95) <= 30
    assert settled(shares[60:], near[60:], 0.95) <= 30
    assert 0.02 < shares[-1] < shares[55] < 0.08


def autopiloted(at: np.ndarray, keys: np.ndarray | None = None) -> pa.Table:
    """What an autopilot that begins with half of 30 seconds answers of such rows, delivered at once."""
    table = pa.table({"t": pa.array((at * 1e6).astype(np.int64), pa.timestamp("us")), "v": np.ones(len(at))})
    table = table if keys is None else table.append_column("k", pa.array(keys))
    told, arrival = punctuated(table, "t", "30 seconds", at)
    plan = pw.tumbling_windows("30 seconds").by(*([] if keys is None else ["k"])).at("t", pw.in_band("mark"))
    return deliver(plan, told, SUM, arrival=arrival, prods=pw.prodder("30 seconds", 0.5, hold_accuracy=0.9)).results


def test_an_autopilot_that_asks_before_there_is_anything_asks_later() -> None:
    """Rows come even, and then at the very ends of slides: what was asked for, and not there, was not right."""
    rng = np.random.default_rng(1)
    at = np.sort(np.concatenate([30 * w + 30 - rng.uniform(0, 30 if w < 20 else 1.5, 300) for w in range(60)]))
    early = autopiloted(at).filter(pc.field("timing") == "early").column("segment").to_pylist()
    answered = {(row["start"] - datetime(1970, 1, 1)).total_seconds() // 30 for row in early}
    assert len(answered & set(range(30, 60))) >= 28


def test_an_autopilot_counts_keys_that_it_misses() -> None:
    """One row of each key in a window: half of the slide before its end, half of the keys have no answer."""
    rng = np.random.default_rng(2)
    at = np.concatenate([30 * w + rng.uniform(0, 30, 100) for w in range(40)])
    order = np.argsort(at)
    found = autopiloted(at[order], np.tile(np.arange(100), 40)[order])
    last = found.filter(pc.field("segment", "start") >= pa.scalar(datetime(1970, 1, 1, 0, 10), pa.timestamp("us")))
    finals, early = (len(last.filter(pc.field("timing") == timing)) for timing in ("final", "early"))
    assert 0.85 < early / finals < 0.95


def slack_windows(at: np.ndarray, hold: float) -> pa.Table:
    """Results of windows of 30 seconds that are open a minute longer, so that each is asked for three times."""
    table = pa.table({"t": pa.array((at * 1e6).astype(np.int64), pa.timestamp("us")), "v": np.ones(len(at))})
    plan = pw.tumbling_windows("30 seconds").at("t", pw.slack("1 minute"))
    return deliver(plan, table, SUM, prods=pw.prodder("30 seconds", 0.5, hold_accuracy=hold)).results


def test_an_autopilot_learns_from_answers_before_the_end() -> None:
    """Those that are asked for again after it are nearly right, whenever the first one is."""
    at = np.sort(np.random.default_rng(4).uniform(0, 1800, 30_000))
    found = slack_windows(at, 0.9).filter(pc.field("timing") == "final").to_pylist()
    first = [row["early"][0]["accuracy"]["total"] for row in found[20:-3]]
    assert all(len(row["early"]) == 3 for row in found[20:-3])
    assert np.mean(first) == pytest.approx(0.9, abs=0.02)


def test_an_answer_after_the_end_is_none_when_it_was_asked_for() -> None:
    """Rows come even, and then at the very ends of slides: it asks later, and is answered before the end again."""
    rng = np.random.default_rng(1)
    at = np.sort(np.concatenate([30 * w + 30 - rng.uniform(0, 30 if w < 20 else 1.5, 300) for w in range(60)]))
    found = slack_windows(at, 0.9).filter(pc.field("timing") == "final").to_pylist()
    assert all(row["early"][0]["accuracy"]["total"] < 1 for row in found[30:57])


def test_what_has_ended_teaches_nothing() -> None:
    """Windows end when they do; of what ends with the latest row, those of the slide count."""
    schedule = Schedule(pw.prodder("10 seconds", 0.5, hold_accuracy=0.9), progress_of("t", pa.timestamp("us")))
    end = np.array([10, 14, 15, 16, 20]) * 1_000_000
    assert schedule.in_time(end, known=True).all()
    schedule.tick(12_000_000)
    schedule.tick(15_000_000)
    assert schedule.in_time(end, known=True).tolist() == [False, False, False, True, True]
    assert schedule.in_time(end, known=False).tolist() == [False, True, True, True, True]


def test_what_can_only_be_answered_after_its_end_is_not_missed() -> None:
    """Of windows that are shorter than slides, and where slides are left out, those that end in time count."""
    schedule = Schedule(pw.prodder("30 seconds", 0.5, hold_accuracy=0.9), progress_of("t", pa.timestamp("us")))
    second, end = 1_000_000, np.arange(10, 160, 10) * 1_000_000

    def asked() -> list[int]:
        return (end[schedule.asked_for(end, schedule.reached)] // second).tolist()

    schedule.tick(1 * second)
    schedule.tick(16 * second)
    schedule.tick(46 * second)
    assert asked() == [20, 30, 50, 60]
    schedule.tick(136 * second)
    assert asked() == [140, 150]


def test_the_share_that_is_told_is_the_one_in_force() -> None:
    """Of many shards one has rows, and learns."""
    rng = np.random.default_rng(3)
    plan = pw.tumbling_windows("30 seconds").at("t", pw.slack("0 seconds"))
    stream = LocalStream(plan, SUM, shards=16, prods=pw.prodder("30 seconds", 0.5, hold_accuracy=0.95))
    for window in range(20):
        at = np.sort(rng.uniform(30 * window, 30 * window + 30, 300))
        for begin in range(30):
            some = at[(at >= 30 * window + begin) & (at < 30 * window + begin + 1)]
            times = pa.array((some * 1e6).astype(np.int64), pa.timestamp("us"))
            stream.feed(pa.table({"t": times, "v": np.ones(len(some))}), clock=30 * window + begin + 1)
        assert stream.prods.aggressiveness is not None
        assert window > 0 or stream.prods.aggressiveness == 0.5
    shards = [new_shard(stream._layout, 16, state) for state in stream._state]  # type: ignore[arg-type]  # it has run
    moved = [shard.prodding.schedule for shard in shards if shard.prodding.schedule.has_learned]  # type: ignore[union-attr]  # it has run
    assert [each.aggressiveness for each in moved] == [stream.prods.aggressiveness]
    assert moved[0].aggressiveness < 0.15


def test_of_many_early_answers_a_few_are_kept() -> None:
    """The first and the latest: a window that is asked for again and again must not fill the state."""
    stream = LocalStream(pw.tumbling_windows(1000).at("t", pw.slack(100)), SUM, prods=True)
    sizes = []
    for i in range(60):
        (told,) = stream.feed(rows((i, 1)), clock=i, prod={}).to_pylist()
        assert (told["number"], told["total"]) == (i, i + 1)
        sizes.append(stream.state_bytes)
    assert max(sizes[20:]) - min(sizes[20:]) < 100
    (told,) = stream.feed(final=True, clock=60).to_pylist()
    assert [one["number"] for one in told["early"]] == [0, *range(45, 60)]
    assert [one["seconds"] for one in told["early"]] == [60, *range(15, 0, -1)]
    assert (stream.prods.early, stream.prods.matched) == (60, KEPT)


def test_latency_through_plans_over_plans() -> None:
    """From the first row of the first plan, to answers of the last."""
    plan = pw.tumbling_windows(5).by("v").at("t", pw.slack(0)).agg(SUM).then(pw.tumbling_windows(10).agg(n="count(*)"))
    stream = LocalStream(plan, prods=True, shards=2)
    assert not len(stream.feed(rows((1, 1)), clock=100))
    (told,) = stream.feed(rows((2, 2)), clock=103, prod={}).to_pylist()
    assert (told["n"], told["latency"]) == (2, 3.0)
    (told,) = stream.feed(rows((7, 1)), clock=105, prod={}).to_pylist()
    assert (told["n"], told["number"], told["latency"]) == (3, 1, 5.0)
    (told,) = stream.feed(rows((20, 1)), clock=110).to_pylist()
    assert (told["timing"], told["n"], told["latency"]) == ("final", 3, 10.0)
    assert [one["seconds"] for one in told["early"]] == [7.0, 5.0]
    assert (stream.prods.final_latency, stream.prods.gain) == (10.0, pytest.approx(0.6))


def test_the_worst_of_a_measure_that_goes_beyond_one() -> None:
    stream = LocalStream(
        pw.tumbling_windows(10).at("t", pw.slack(100)), SUM, prods=True, shards=4,
        accuracy=lambda early, final, seconds: 100 * early / final,
    )  # fmt: skip
    stream.feed(rows((1, 9)), prod={})
    stream.feed(rows((2, 1)))
    stream.finish()
    assert (stream.prods.accuracy["total"].mean, stream.prods.accuracy["total"].worst) == (90, 90)


def test_a_clock_on_the_wall() -> None:
    """Where `at` has no zone, a prodder asks by the time of the session's: in Tokyo it is nine hours later."""
    told = {}
    for zone in (None, "Asia/Tokyo", "America/Los_Angeles"):
        spec = replace(pw.prodder("1 hour", 0.0), zone=zone)
        schedule = Schedule(spec, progress_of("t", pa.timestamp("us")))
        assert schedule.tick(12 * 3_600_000_000 - 1) is None
        (told[zone],) = schedule.tick(12 * 3_600_000_000).to_pylist()  # type: ignore[union-attr]  # it is due
    assert {zone: at.hour for zone, at in told.items()} == {None: 12, "Asia/Tokyo": 21, "America/Los_Angeles": 4}


def test_a_prodder_may_have_other_slides_after_a_restart() -> None:
    """Which one it has asked for last says nothing about slides of another length."""
    progress, second = progress_of("t", pa.timestamp("us")), 1_000_000
    before = Schedule(pw.prodder("1 second", 0.0), progress)
    assert [before.tick(clock * second) is not None for clock in (600, 601)] == [False, True]
    facts = before.facts()
    told = {}
    for every in ("1 second", "1 minute"):
        schedule = Schedule(pw.prodder(every, 0.0), progress)
        schedule.restore(facts)
        told[every] = [schedule.tick(clock * second) is not None for clock in (601, 602, 661)]
    assert told == {"1 second": [False, True, True], "1 minute": [False, False, True]}
    # what was not kept once was the same
    old = Schedule(pw.prodder("1 second", 0.0), progress)
    old.restore({name: fact for name, fact in facts.items() if name != "every"})
    assert [old.tick(clock * second) is not None for clock in (601, 602)] == [False, True]


def seconds(*at: int) -> pa.Table:
    """A row at each of these seconds."""
    return pa.table({"t": pa.array([s * 1_000_000 for s in at], pa.timestamp("us")), "v": [1] * len(at)})


def test_a_prodder_goes_by_the_clock_that_ticks() -> None:
    """As long as none has, the time is known that rows arrive at; it may be years from what the clock will say."""
    plan = pw.tumbling_windows("1 minute").at("t", pw.slack("1 minute"))
    stream = LocalStream(plan, SUM, prods=pw.prodder("1 minute", 0.5))
    elements = stream.read(seconds(1, 2, 3))
    assert stream._layout is not None
    shard, asked = new_shard(stream._layout), []
    for i, clock in enumerate((None, 10, 40)):
        fed = with_control(elements.slice(i, 1), None, clock, False)
        pages = [page for _, page in Packer(stream._layout, 1).run(fed.to_batches())]
        asked.append(shard.batch(pages, now=1_700_000_000_000_000).asked)
    assert asked[:2] == [None, None]
    assert asked[2] is not None
    assert asked[2].column("at").to_pylist() == [datetime(1970, 1, 1, 0, 1)]


def test_no_time_is_known_before_the_clock_begins() -> None:
    """So an early answer from before it is no half a century older than its final one."""
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(100)), SUM, prods=True)
    stream.feed(rows((1, 1)), prod={})
    stream.feed(rows((2, 1)), clock=1_700_000_000)
    (told,) = stream.feed(final=True, clock=1_700_000_003).to_pylist()
    assert (told["latency"], told["early"][0]["seconds"]) == (3.0, 0.0)
    assert stream.prods.gain is None


def test_a_prodder_asks_before_windows_end_that_have_an_origin() -> None:
    """A quarter of a minute before the half of each, also in the first of a stream that begins at 0."""
    plan = pw.tumbling_windows("1 minute", origin="1970-01-01 00:00:30").at("t", pw.slack("0 seconds"))
    told = deliver(plan, seconds(*range(30, 331)), SUM, prods=pw.prodder("1 minute", 0.25))
    early = told.results.filter(pc.field("timing") == "early")
    assert early.column("clock").to_pylist() == [75, 135, 195, 255, 315]
    assert told.accuracies().column("seconds").to_pylist() == [15] * 5
    before = pw.tumbling_windows("1 minute", origin="1969-12-31 00:00:30").at("t", pw.slack("0 seconds"))
    told = deliver(before, seconds(*range(40)), SUM, prods=pw.prodder("1 minute", 0.25))
    assert told.accuracies().column("seconds").to_pylist() == [15]


def test_the_origin_of_the_last_plan_counts() -> None:
    """It is its windows that are asked for."""
    sums = pw.tumbling_windows("10 seconds").at("t", pw.slack("0 seconds")).agg(SUM)
    both = sums.then(pw.tumbling_windows("1 minute", origin="1970-01-01 00:00:30").agg(n="sum(total)"))
    stream = LocalStream(both, prods=pw.prodder("1 minute", 0.25))
    found = {clock: stream.feed(seconds(clock), clock=clock).to_pylist() for clock in (40, 60, 74, 75, 80)}
    assert {clock: [(row["timing"], row["n"]) for row in told] for clock, told in found.items() if told} == {
        75: [("early", 4)]
    }


@pytest.mark.parametrize(
    ("origin", "at", "phase"),
    [
        ("2024-01-01T00:00:30", pa.timestamp("us"), -30),
        ("1969-12-31 23:59:50", pa.timestamp("us"), -10),
        ("2024-01-01", pa.timestamp("us"), 0),
        ("2024-01-01 00:00:30+00:00", pa.timestamp("us", "UTC"), -30),
        ("2024-01-01", pa.date32(), 0),
        (None, pa.int64(), 0),
    ],
)
def test_slides_begin_with_the_origin(origin: str | None, at: pa.DataType, phase: int) -> None:
    spec = replace(pw.prodder("1 minute"), origin=origin)
    assert phase_of(spec, progress_of("t", at)) == phase * 1_000_000


@pytest.mark.parametrize("values", [[np.inf, 1.0], [np.inf, -np.inf], [1e308, 1e308, -1e308]])
def test_no_answer_is_worth_a_query(values: list[float]) -> None:
    """What is infinite, or no number, is final all the same, prodded or not."""
    told = []
    for prods in (None, True):
        stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM, prods=prods)
        stream.feed(pa.table({"t": [1] * len(values[:1]), "v": values[:1]}))
        if prods:
            stream.prod()
        stream.feed(pa.table({"t": [2] * len(values[1:]), "v": values[1:]}))
        told.append(stream.feed(final=True).column("total").to_pylist())
    assert str(told[0]) == str(told[1])


def test_a_measure_that_does_not_know() -> None:
    """It is not counted, and the query goes on."""
    plan = pw.tumbling_windows(10).at("t", pw.slack(0))
    stream = LocalStream(plan, SUM, prods=True, accuracy=lambda early, final, seconds: np.full(len(early), np.nan))
    stream.feed(rows((1, 1)))
    stream.prod()
    assert stream.feed(final=True).column("total").to_pylist() == [1]
    assert stream.prods.accuracy["total"].count == 0


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        ({"totl": lambda early, final, seconds: early}, r"`accuracy` \('totl'\): there is no such aggregate"),
        (lambda early, final: early, r"`accuracy` .*tried on two of each, it failed"),
        (lambda *_: [1, 2, 3], r"`accuracy` .*must give a number for each early value; of 2 it gave"),
        (lambda early, final, seconds: 1.0, r"`accuracy` .*must give a number for each early value"),
    ],
)
def test_measures_are_tried_before_anything_runs(measure: object, said: str) -> None:
    with pytest.raises((pw.InputError, pw.DataError), match=said):
        LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM, prods=True, accuracy=measure)


def test_accuracies_of_numbers_beyond_53_bits() -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), {"top": "max(v)"}, prods=True)
    stream.feed(rows((1, 2**61 + 1)), prod={})
    (told,) = stream.feed(rows((2, 2**62 + 1), (20, 0))).to_pylist()
    assert told["top"] == 2**62 + 1
    assert told["early"][0]["accuracy"] == {"top": 0.5}


def test_what_is_no_value_of_its_type() -> None:
    """Arrow would round it, or take a number for microseconds."""
    stream = LocalStream(pw.tumbling_windows(10).by("v").at("t", pw.slack(0)), SUM, prods=True)
    with pytest.raises(pw.InputError, match=r"`prod` \(7.9\) must be of type int64"):
        stream.feed(rows((1, 7)), prod={"v": 7.9})
    assert stream.feed(rows((1, 7)), prod={"v": 7.0}).num_rows == 1
    timed = rows((1, 7)).set_column(0, "t", pa.array([1_000_000], pa.timestamp("us")))
    stream = LocalStream(pw.tumbling_windows("10 seconds").at("t", pw.slack("0 seconds")), SUM, prods=True)
    with pytest.raises(pw.InputError, match=r"`until` \(50\) must be of type timestamp"):
        stream.feed(timed, until=50)


@pytest.mark.parametrize("until", ["abc", float("nan"), True, 1 << 70, -5.5])
def test_what_is_no_instant(until: object) -> None:
    stream = LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM, prods=True)
    stream.feed(rows((1, 1)))
    with pytest.raises(pw.InputError, match=r"`until` \(.*must be of type int64"):
        stream.prod(until=until)
    with pytest.raises(pw.InputError, match=r"`prod` \(5\) must say what it asks for"):
        stream.feed(prod=5)  # type: ignore[arg-type]  # wrong on purpose


def test_arrivals_are_times() -> None:
    with pytest.raises(pw.InputError, match=r"which is no time"):
        deliver(pw.tumbling_windows(10).at("t", pw.slack(0)), rows((1, 1), (2, 1)), SUM, arrival=[np.inf, 1.0])


def test_another_stream_is_for_spark() -> None:
    with pytest.raises(pw.SpecError, match=r"`prods` \(prods_from\) is another stream, and here there is one"):
        LocalStream(pw.tumbling_windows(10).at("t", pw.slack(0)), SUM, prods=pw.prods_from(rows((1, 1)), "t"))


def test_a_delivery_by_a_slow_operator() -> None:
    """Ten rows at once, one second each: a prod overtakes those that wait, and the final answer waits for all."""
    times = pa.array([s * 1_000_000 for s in range(10)] + [10_000_000], pa.timestamp("us"))
    table = pa.table({"t": times, "v": [1] * 11, "mark": [False] * 10 + [True]})
    plan = pw.tumbling_windows("10 seconds").at("t", pw.in_band("mark"))
    told = deliver(plan, table, {"n": "count(*)"}, arrival=[0.0] * 11, cost=1.0, prods=True, prod_at=[(4.5, None)])
    early, final = told.results.to_pylist()
    assert (early["timing"], early["clock"], early["n"]) == ("early", 4.5, 4)
    assert (final["timing"], final["clock"], final["n"]) == ("final", 11.0, 10)
    assert told.accuracies().to_pylist() == [{"number": 0, "seconds": 6.5, "latency": 11.0, "gain": 6.5 / 11, "n": 0.4}]


def test_a_prodder_is_as_far_off_as_it_is_early() -> None:
    at = np.arange(0, 400, 0.1)
    marks = np.arange(10, 401, 10)
    times = np.concatenate([at, marks - 1e-6])
    table = pa.table(
        {
            "t": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us")),
            "mark": np.arange(len(times)) >= len(at),
        }
    )
    plan = pw.tumbling_windows("10 seconds").at("t", pw.in_band("mark"))
    for share in (0.1, 0.5):
        told = deliver(
            plan, table, {"n": "count(*)"}, arrival=times, prods=pw.prodder("10 seconds", share)
        ).accuracies()
        assert len(told) == 40
        assert np.mean(told.column("n")) == pytest.approx(1 - share, abs=0.02)
        assert np.mean(told.column("seconds")) == pytest.approx(10 * share, abs=0.01)


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_windows_without_rows_reach_as_far_as_rows_of_any_shard(shards: int) -> None:
    frames = pw.threshold_frames("v > 0").by("k").at("t", pw.slack(10)).agg(n="count(*)")
    both = frames.then(pw.tumbling_windows(5, keep_empty=True).by("k").agg(frames="count(*)"))
    table = pa.table({"k": pa.array(range(4)), "t": pa.array([-1, 0, 3, 12]), "v": pa.array([1, 1, 1, 1])})
    early = LocalStream(both, shards=shards, prods=True).feed(table, prod={}).to_pylist()
    told = sorted((row["k"], row["segment"]["start"], row["frames"]) for row in early)
    batch = pw.segments_local(both, table).to_pylist()
    assert told == sorted((row["k"], row["segment"]["start"], row["frames"]) for row in batch)
    # up to 2 all rows have come: the frame at 12, and what it makes others wait for, may still change
    certain = sorted((row["segment"]["start"], row["certain"]) for row in early if row["k"] == 0)
    assert certain == [(-5, True), (0, True), (5, False), (10, False)]
