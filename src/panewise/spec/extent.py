"""What an interval means: which instants a segment claims beyond its rows."""

from __future__ import annotations

from panewise.spec.check import choice

__all__ = ["EXTENTS", "extent"]

EXTENTS = ("observed", "held", "possible")
"""observed [first row, last row]; held [first row, next row); possible (row before, row after)."""


def extent(value: object, default: str) -> str:
    """The extent that was asked for, or the scheme's own."""
    return default if value is None else choice("extent", value, EXTENTS)
