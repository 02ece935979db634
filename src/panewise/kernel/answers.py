"""How good early answers were, so far: figures of every shard, added up, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from panewise.kernel.page import Array

__all__ = ["Accuracy", "ProdProgress", "added", "figures_of", "how", "is_whole", "told"]

_BITS = 62
"""Of how many prods in one micro-batch it is told which were answered."""


@dataclass(frozen=True)
class Accuracy:
    """How near the early values of an aggregate were to their final ones; None, where none has come."""

    count: int = 0
    mean: float | None = None
    worst: float | None = None

    def __str__(self) -> str:
        return "none yet" if self.mean is None or self.worst is None else f"{self.mean:.1%}, worst {self.worst:.1%}"


@dataclass(frozen=True)
class ProdProgress:
    """Prods and their answers, from the first micro-batch on; `str` tells it."""

    prods: int = 0
    unanswered: int = 0
    """Prods that found nothing to answer, because they came too early, or too late.

    On Spark: of the micro-batches that the query, or whoever watches it, remembers.
    """
    early: int = 0
    matched: int = 0
    """Early answers whose final ones have come, on which all else is based."""
    accuracy: Mapping[str, Accuracy] = field(default_factory=lambda: MappingProxyType({}))
    """Of each aggregate."""
    early_latency: float | None = None
    final_latency: float | None = None
    """Mean seconds from the first row's arrival to the early answer, and to the final one, of those that have both."""
    gain: float | None = None
    """Which share of the final latency the early answers came before the final ones, in the mean."""
    aggressiveness: float | None = None
    """Of the prodder, now; of an autopilot, the mean over shards that have moved it, each by its own keys."""

    @property
    def accuracies(self) -> str:
        """Of each aggregate, in words."""
        return "; ".join(f"{name}: {near}" for name, near in self.accuracy.items()) or "no aggregates"

    @property
    def asked(self) -> str:
        """What was asked and answered, in words."""
        found = [f"{self.prods:,} asked", f"{self.early:,} early answers, {self.matched:,} of them final by now"]
        if self.unanswered:
            found.append(f"{self.unanswered:,} found nothing to answer")
        return ", ".join(found)

    @property
    def earliness(self) -> str:
        """How much sooner early answers came, in words."""
        if self.gain is None or self.early_latency is None or self.final_latency is None:
            return "not known yet"
        final = f"final ones {self.final_latency:,.1f} s"
        return f"{self.early_latency:,.1f} s after the first row, {final} ({self.gain:.1%} gained)"

    def __str__(self) -> str:
        lines = [f"prods: {self.asked}", f"accuracy: {self.accuracies}", f"early answers: {self.earliness}"]
        if self.aggressiveness is not None:
            lines.append(f"aggressiveness: {self.aggressiveness:.1%} of the slide")
        return "\n".join(lines)


_HOW = {
    "prods": "max",
    "asked": "max",
    "answered": "bit_or",
    "early": "sum",
    "matched": "sum",
    "latency_count": "sum",
    "latency_early": "sum",
    "latency_final": "sum",
    "latency_gain": "sum",
    "share_count": "sum",
    "share_total": "sum",
    "share_begun": "max",
}
_NEAR = {"count": "sum", "total": "sum", "worst": "min"}
_REAL = ("latency_", "share_", "near_")


def how(aggregates: int) -> dict[str, str]:
    """What shards tell of prods, under the names of figures, and how the figures of several are put together."""
    near = {f"near_{i}_{what}": way for i in range(aggregates) for what, way in _NEAR.items()}
    return {**_HOW, **near}


def is_whole(figure: str) -> bool:
    """Whether what is reported under a name is a whole number."""
    return not figure.startswith(_REAL)


def figures_of(facts: Mapping[str, Any], names: Sequence[str], answered: Array | None) -> dict[str, Any]:
    """The figures of a shard, from what it keeps; `answered` is of the prods of this micro-batch."""
    marks = [] if answered is None else answered.tolist()
    found = {"prods": facts["prods"], "asked": len(marks), **facts["totals"]}
    found["answered"] = sum(1 << i for i, mark in enumerate(marks[:_BITS]) if mark)
    found |= dict(zip((name for name in _HOW if name.startswith("latency")), facts["latencies"], strict=True))
    share, learned = facts["aggressiveness"], facts["has_learned"]
    found |= {"share_count": float(learned), "share_total": share if learned else 0.0, "share_begun": share}
    for i, name in enumerate(names):
        found |= {f"near_{i}_{what}": value for what, value in zip(_NEAR, facts["means"][name], strict=True)}
    return found


def added(shards: Sequence[Mapping[str, Any]], aggregates: int) -> dict[str, Any]:
    """The figures of several shards, put together."""
    ways: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "max": _most, "min": min, "bit_or": _union}
    return {name: ways[way]([shard[name] for shard in shards]) for name, way in how(aggregates).items()}


def _most(values: Iterable[Any]) -> Any:
    """The largest that is there."""
    return max((value for value in values if value is not None), default=None)


def _union(marks: Iterable[int]) -> int:
    found = 0
    for mark in marks:
        found |= mark
    return found


def told(figures: Mapping[str, Any], names: Sequence[str]) -> ProdProgress:
    """What figures say."""
    near = {}
    for i, name in enumerate(names):
        count, total, worst = (figures[f"near_{i}_{what}"] for what in _NEAR)
        near[name] = Accuracy(int(count), total / count, worst) if count else Accuracy()
    count = figures["latency_count"]
    early, final, gain = (figures[f"latency_{of}"] / count if count else None for of in ("early", "final", "gain"))
    shares = figures["share_count"]
    return ProdProgress(
        prods=int(figures["prods"]),
        unanswered=min(int(figures["asked"]), _BITS) - int(figures["answered"]).bit_count(),
        early=int(figures["early"]),
        matched=int(figures["matched"]),
        accuracy=MappingProxyType(near),
        early_latency=early,
        final_latency=final,
        gain=gain,
        aggressiveness=figures["share_total"] / shares if shares else figures["share_begun"],
    )
