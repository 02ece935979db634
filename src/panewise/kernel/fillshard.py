"""A shard of a stream that is filled: the shard that draws segments, if they are drawn, and the fill behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from panewise.kernel.bundle import load
from panewise.kernel.chunks import Store
from panewise.kernel.fill import FillLayout
from panewise.kernel.filler import Filler, Given
from panewise.kernel.punctuate import Seen
from panewise.kernel.sequence import Layout
from panewise.kernel.shard import Shard
from panewise.kernel.state import check_fingerprint, fill_fingerprint, pack_state, unpack_state

__all__ = ["EVERY", "FillShard", "FillSpec", "Outcome"]

EVERY = -1
"""The side of a page that concerns framing and all sources: commands."""


@dataclass(frozen=True)
class FillSpec:
    """All that a shard must know: how segments are drawn (None: they were found before), and how each source fills."""

    framing: Layout | None
    fillings: tuple[FillLayout, ...]
    keys: tuple[str, ...]
    shards: int
    whole_rows: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a micro-batch: results; late rows of the framing; late rows of sources, by number; counts."""

    found: pa.Table | None
    late: pa.Table | None
    late_of: Sequence[tuple[int, pa.Table]]
    counts: dict[str, int]


@dataclass
class _Pages:
    """The pages of one side."""

    raw: list[bytes] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    rows: list[tuple[pa.Table, pa.Table]] = field(default_factory=list)
    promises: list[tuple[pa.Table, pa.Table]] = field(default_factory=list)


class FillShard:
    """The keys of one shard; `batch` takes a micro-batch, `state` gives what to keep beside the chunks in `store`."""

    def __init__(self, spec: FillSpec, store: Store, state: bytes | None = None) -> None:
        self._spec = spec
        self._fingerprint = fill_fingerprint(spec.fillings, spec.shards, spec.whole_rows)
        self._progress = spec.fillings[0].progress
        self.filler = Filler(spec.fillings, spec.keys, store, spec.whole_rows)
        framing = None
        if state is not None:
            tables, facts = unpack_state(state)
            check_fingerprint(facts["plan"], self._fingerprint)
            self.filler.restore(tables, facts["fill"])
            framing = tables["framing"].column(0)[0].as_py() if "framing" in tables else None
        self.framing = None if spec.framing is None else Shard(spec.framing, spec.shards, framing)

    @property
    def totals(self) -> dict[str, int]:
        """What is counted from the first micro-batch on."""
        return {**({} if self.framing is None else self.framing.totals), **self.filler.totals}

    def state(self) -> bytes:
        """All that the next micro-batch needs, but for the chunks."""
        tables, facts = self.filler.state()
        if self.framing is not None:
            tables["framing"] = pa.table({"state": pa.array([self.framing.state()], pa.large_binary())})
        return pack_state(tables, {"plan": self._fingerprint, "fill": facts})

    def hold(self, pages: Iterable[bytes]) -> None:
        """Take segments that were found before."""
        tables = [load(page)[0]["segments"] for page in pages]
        if tables:
            self.filler.hold(pa.concat_tables(tables, promote_options="default"))

    def batch(self, pages: Iterable[bytes], watermarks: Sequence[Any] = ()) -> Outcome:
        """Take the pages of a micro-batch, in any order; watermarks are those of the framing and of each source."""
        sides = [_Pages() for _ in self._spec.fillings]
        raw: list[bytes] = []
        for data in pages:
            tables, facts = load(data)
            side = facts.get("side")
            if side is None or side == EVERY:
                raw.append(data)
            for i in range(len(sides)) if side == EVERY else () if side is None else (side,):
                if "seen" in facts:
                    sides[i].seen.append(Seen.read(self._progress, facts["seen"], tables))
                elif "rows" in tables:
                    sides[i].rows.append((tables["keys"], tables["rows"]))
                else:
                    sides[i].promises.append((tables["keys"], tables["promises"]))
        marks = list(watermarks) or [None] * (1 + len(sides))
        counts, late, segments, promised, beyond = {}, None, None, None, self._progress.everything
        if self.framing is not None:
            drawn = self.framing.batch(raw, marks[0])
            counts, late, segments = drawn.counts, drawn.late, drawn.segments
            promised, beyond = self.framing.promised(), self.framing.punctuator.until
        given = [Given(side.seen, side.rows, side.promises) for side in sides]
        before = dict(self.filler.totals)
        filled = self.filler.step(segments, promised, beyond, given, marks[1:])
        fresh = {name: self.filler.totals[name] - before[name] for name in before}
        return Outcome(filled.segments, late, filled.late, {**counts, **fresh, **self.filler.counts()})
