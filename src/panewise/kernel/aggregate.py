"""Aggregate frames: rows until an aggregate over them passes a bound."""

from __future__ import annotations

from panewise.kernel import chains, progressions
from panewise.kernel.delta import chain_reader
from panewise.kernel.framing import ChainFraming
from panewise.spec.frames import AggregateFrames

__all__ = ["aggregate"]

_KINDS = {
    "sum": progressions.SUM,
    "count": progressions.COUNT,
    "avg": progressions.AVG,
    "min": progressions.MIN,
    "max": progressions.MAX,
    "range": progressions.RANGE,
    "stddev": progressions.STDDEV,
}


def aggregate(scheme: AggregateFrames) -> ChainFraming:
    """The measure is the running aggregate."""
    return ChainFraming(
        read=chain_reader(scheme),
        kind=_KINDS[scheme.aggregate.function],
        bounds=(scheme.bound,),
        strict=scheme.strict,
        cells=3,
        operator=chains.chain_page,
    )
