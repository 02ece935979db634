"""A fill in words: where rows come from, which of them lie in a segment, how they get there, what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from panewise.spec.aggregates import Aggregates, Calls
from panewise.spec.duration import Amount, Duration, size
from panewise.spec.emit import sends_parts
from panewise.spec.explain import explain
from panewise.spec.explain_progress import lined, progress
from panewise.spec.fill import Filling
from panewise.spec.plan import PlanSpec

__all__ = ["Explained", "explain_fill"]

_JOINED = (
    "rows become pages, segments chunks, both in order; where they overlap in time they are joined by shard of the "
    "key, and merged: no range join, and neither side is held in memory"
)
_SCANNED = (
    "Python workers read them, skip what holds no time of a segment, and look each row up among the segments of its "
    "key: no join, and no row is sorted or shuffled"
)
_STAGE = "both streams meet in one stateful stage, by shard of the key"


@dataclass(frozen=True)
class Explained:
    """One source of a fill, as it is explained; without `calls` each of its rows is given, `origin` says of what."""

    filling: Filling
    calls: Calls = ()
    origin: str = ""
    stream: bool = False
    fused: bool = False
    files: int = 0
    """How many files Python workers read themselves; or else `why` they do not."""
    why: str = ""


@dataclass(frozen=True)
class _Framing:
    plan: PlanSpec
    stream: bool
    known: bool
    parts: bool


def explain_fill(
    plan: PlanSpec,
    sources: Mapping[str, Explained],
    agg: Aggregates | None = None,
    *,
    stream: bool = False,
    known: bool = False,
    every: bool = False,
    parts: bool = False,
) -> str:
    """The text of `fill.explain()`.

    `agg` is what is computed while segments are drawn from a `stream` or a table; or they are `known` before. `every`
    keeps segments without rows; `parts` are sent of open ones.
    """
    framing = _Framing(plan, stream, known, parts)
    found = lined([("Segments", "found before: they are taken as they are, each once")])
    blocks = [found if known else explain(plan, agg)]
    blocks += [lined(_facts(framing, name, source)) for name, source in sources.items()]
    if any(source.calls for source in sources.values()):
        blocks.append(lined([("Results", _results(list(sources.values()), every))]))
    else:
        blocks.append(lined([("Results", "each matching row with its segment, once for each that it lies in")]))
    return "\n\n".join(blocks)


def _results(sources: Sequence[Explained], every: bool) -> str:
    if every:
        return "one row for every segment"
    some = "" if len(sources) == 1 else " of one source at least"
    return f"one row for each segment that has rows{some}; the others are left out"


def _facts(framing: _Framing, name: str, source: Explained) -> list[tuple[str, str]]:
    given = source.filling
    told = given.punctuation if source.stream and not source.fused else None
    facts = [
        ("Filled with", f"{name}: {_origin(source)}" if name else _origin(source)),
        ("Rows", _rows(framing.plan, given)),
        ("Match", _match(framing, given)),
        ("Aggregates", ", ".join(f"{result} = {call}" for result, call in source.calls)),
        ("Progress", "" if told is None else progress(given, told)),
        ("How", _how(framing, source)),
    ]
    if source.stream and not source.fused:
        facts += [
            ("Rows wait", _rows_wait(framing, given)),
            ("Segments wait", f"until {given.time} has come to {_moved(given.reach[1])}their end"),
            ("State", _state(framing, source)),
        ]
    return facts


def _origin(source: Explained) -> str:
    kind = "a stream" if source.stream else "a stored table"
    return f"{source.origin}, {kind}" if source.origin else kind


def _rows(plan: PlanSpec, given: Filling) -> str:
    pairs = [own if own == key else f"{own} = {key}" for own, key in zip(given.keys, plan.keys, strict=True)]
    text = f"of the segment's own {', '.join(pairs)}" if pairs else "all: there is no key"
    return text if given.where is None else f"{text}, where {given.where}"


def _match(framing: _Framing, given: Filling) -> str:
    if not given.moves:
        return f"{given.time} within the bounds of the segment, each included or not as it is there"
    text = (
        f"{given.time} from {_moved(given.reach[0])}the start of the segment to {_moved(given.reach[1])}its end; each "
        "bound is included or not as it is there"
    )
    if any(size(side) < 0 for side in (given.before, given.after)):
        text += "; a segment that is emptied takes no row"
    if framing.parts and given.before is not None:
        text += "; of its parts the first is widened"
    return text


def _how(framing: _Framing, source: Explained) -> str:
    if source.fused:
        return "fused: what draws the segments aggregates their rows on its way; no join, and no row waits"
    if not source.stream:
        how = f"{_JOINED}. Spark reads them: {source.why}" if source.why else _JOINED
        if source.files:
            how = f"scan lane: {source.files:,} Parquet file{'s' if source.files > 1 else ''}; {_SCANNED}"
        if not framing.stream:
            return how
        return f"{how}; in every micro-batch, for the segments that it closed, and the table is read anew"
    if framing.stream:
        return _STAGE
    first = "" if framing.known else "segments are found first, in a batch; "
    return f"{first}a stateful stage, by shard of the key, begins with the segments, and rows come to them"


def _rows_wait(framing: _Framing, given: Filling) -> str:
    if not framing.stream:
        return "never: every segment is there when they come"
    start, possible = given.reach[0], framing.plan.scheme.extent == "possible"
    what = "the last row" if possible else "just before the start of what is open"
    text = f"until no segment to come can reach them: progress of {framing.plan.ordered_by}, at most to {what}"
    if size(start) < 0:
        return f"{text}, less {_opposite(start)}"
    return text if not size(start) else f"{text}, and {start} more"


def _state(framing: _Framing, source: Explained) -> str:
    ends = "segments that rows may still enter"
    ends += "" if not source.calls else ", with their aggregates so far"
    if not framing.stream:
        return f"{ends}; in chunks, of which those are read that rows fall into"
    start = source.filling.reach[0]
    back = f", and {_opposite(start)} before" if size(start) < 0 else ""
    text = f"rows since the start of the oldest segment of their key that is open{back}; {ends}; both in chunks by time"
    if framing.parts:
        return f"{text}; parts let rows go before a segment is over"
    return (
        f'{text}; emit="fragments" lets rows go before a segment is over' if sends_parts(framing.plan.scheme) else text
    )


def _opposite(amount: Amount) -> Amount:
    return Duration(-amount.micros) if isinstance(amount, Duration) else -amount


def _moved(amount: Amount) -> str:
    """From where, in words.

    >>> _moved(Duration(-30_000_000)), _moved(5), _moved(0)
    ('30 seconds before ', '5 after ', '')
    """
    if not size(amount):
        return ""
    return f"{_opposite(amount)} before " if size(amount) < 0 else f"{amount} after "
