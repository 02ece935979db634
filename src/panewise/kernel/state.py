"""The state of a shard as bytes: a version of our own, the plan it belongs to, and Arrow tables. No pickle.

Version 1 had no `totals`, and did not say which columns name a source, nor how often one was silent. Arrays may grow
by fields at their end: what an older state lacks is zero.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from panewise.errors import StateError
from panewise.kernel.bundle import Facts, dump, load
from panewise.kernel.fill import FillLayout
from panewise.kernel.sequence import Layout

__all__ = ["VERSION", "check_fingerprint", "fill_fingerprint", "fingerprint", "pack_state", "unpack_state"]

VERSION = 2
_ADDED = ("keep_empty",)
"""Options that older states know nothing of."""
_HEADER = struct.Struct("<4sH")
_MAGIC = b"pane"


def pack_state(tables: Mapping[str, pa.Table], facts: Mapping[str, Any]) -> bytes:
    """State as bytes."""
    return _HEADER.pack(_MAGIC, VERSION) + dump(tables, facts, compressed=True)


def unpack_state(data: bytes) -> tuple[dict[str, pa.Table], Facts]:
    """The inverse of `pack_state`, for this version and every older one."""
    magic, version = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"", 0)
    if magic != _MAGIC:
        raise StateError(
            "The checkpoint holds state that is not panewise's. Point the query at its own checkpoint, or at a new one."
        )
    if version > VERSION:
        raise StateError(
            f"The checkpoint was written by a later panewise (state version {version}; this one reads up to "
            f"{VERSION}). Install that version, or start with a new checkpoint."
        )
    tables, facts = load(data[_HEADER.size :])
    if version < 2:
        facts["totals"] = {}
    return tables, facts


def fingerprint(layout: Layout, shards: int) -> dict[str, str]:
    """What must stay the same for as long as a checkpoint is used, in words."""
    plan = layout.plan
    told = {"scheme": type(plan.scheme).__name__}
    for option in fields(plan.scheme):
        value = getattr(plan.scheme, option.name)
        if option.name in _ADDED and value == option.default:
            continue
        told[option.name] = f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else repr(value)
    told["by"] = ", ".join(f"{name} {kind}" for name, kind in zip(plan.keys, layout.key_types, strict=True))
    told["at"] = f"{plan.ordered_by} {layout.at_type}"
    told["tie_break"], told["ties"] = ", ".join(plan.tie_break), plan.ties
    kinds = zip(layout.agg, layout.input_types, strict=True)
    told["agg"] = ", ".join(f"{name} = {call} of {kind}" for (name, call), kind in kinds)
    told["emit"] = layout.emit.mode
    told["shards"] = str(shards)
    return told


def fill_fingerprint(layouts: Sequence[FillLayout], shards: int, whole_rows: bool) -> dict[str, str]:
    """The same of what fills segments; what is said of their framing is in its own state."""
    told = {"shards": str(shards), "rows": str(whole_rows)}
    for i, layout in enumerate(layouts):
        given = layout.filling
        kinds = zip(layout.agg, layout.input_types, strict=True)
        told |= {
            f"filling {i} by": ", ".join(f"{n} {kind}" for n, kind in zip(given.keys, layout.key_types, strict=True)),
            f"filling {i} at": f"{given.time} {layout.at_type}",
            f"filling {i} where": str(given.where),
            f"filling {i} widen": f"{given.before}, {given.after}",
            f"filling {i} shift": str(given.shift),
            f"filling {i} agg": ", ".join(f"{name} = {call} of {kind}" for (name, call), kind in kinds),
        }
    return told


def check_fingerprint(stored: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse to go on with state that was made by another plan, and say what changed."""
    changed = [name for name in {**stored, **now} if stored.get(name, "") != now.get(name, "")]
    if changed:
        told = "; ".join(f"`{name}` was {stored.get(name, '')!r} and is {now.get(name, '')!r}" for name in changed)
        raise StateError(
            f"The checkpoint belongs to another plan: {told}. Its open segments can't be continued under the new one. "
            "Undo the change, or start with a new checkpoint. (How progress is known, fragment_every and late may "
            "change at any time.)"
        )
