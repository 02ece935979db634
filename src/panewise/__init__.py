"""Find the stretches of a data stream that matter and compute over them, on Spark, from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panewise.builders import (
        CustomScheme,
        aggregate_frames,
        boundary_frames,
        custom_frames,
        delta_frames,
        session_frames,
        threshold_frames,
        trend_frames,
    )
    from panewise.errors import DataError, InputError, JobError, PanewiseError, SpecError
    from panewise.fill import Fill, filling
    from panewise.local.fill import fill_local
    from panewise.local.runner import segments_local
    from panewise.plan import Plan
    from panewise.spark.answers import accuracies
    from panewise.spark.control import Control, prod
    from panewise.spark.outputs import outputs
    from panewise.spark.session import session
    from panewise.spark.watch import StreamProgress, Watch, progress
    from panewise.spec.aggregates import CustomAggregate, custom_aggregate
    from panewise.spec.aside import set_aside
    from panewise.spec.prod import prodder, prods_from, prods_in
    from panewise.spec.punctuate import external, in_band, ordered_per, schedule, slack, watermark
    from panewise.window_builders import (
        ROW_NUMBER,
        landmark_windows,
        row_windows,
        slide_by_tuple_windows,
        sliding_windows,
        tumbling_windows,
        windows,
    )

__all__ = [
    "ROW_NUMBER",
    "Control",
    "CustomAggregate",
    "CustomScheme",
    "DataError",
    "Fill",
    "InputError",
    "JobError",
    "PanewiseError",
    "Plan",
    "SpecError",
    "StreamProgress",
    "Watch",
    "accuracies",
    "aggregate_frames",
    "boundary_frames",
    "custom_aggregate",
    "custom_frames",
    "delta_frames",
    "external",
    "fill_local",
    "filling",
    "in_band",
    "landmark_windows",
    "ordered_per",
    "outputs",
    "prod",
    "prodder",
    "prods_from",
    "prods_in",
    "progress",
    "row_windows",
    "schedule",
    "segments_local",
    "session",
    "session_frames",
    "set_aside",
    "slack",
    "slide_by_tuple_windows",
    "sliding_windows",
    "threshold_frames",
    "trend_frames",
    "tumbling_windows",
    "watermark",
    "windows",
]

_HOMES = {
    "panewise.builders": (
        "CustomScheme",
        "aggregate_frames",
        "boundary_frames",
        "custom_frames",
        "delta_frames",
        "session_frames",
        "threshold_frames",
        "trend_frames",
    ),
    "panewise.errors": ("DataError", "InputError", "JobError", "PanewiseError", "SpecError"),
    "panewise.fill": ("Fill", "filling"),
    "panewise.local.fill": ("fill_local",),
    "panewise.local.runner": ("segments_local",),
    "panewise.plan": ("Plan",),
    "panewise.spark.answers": ("accuracies",),
    "panewise.spark.control": ("Control", "prod"),
    "panewise.spark.outputs": ("outputs",),
    "panewise.spark.session": ("session",),
    "panewise.spark.watch": ("StreamProgress", "Watch", "progress"),
    "panewise.spec.aggregates": ("CustomAggregate", "custom_aggregate"),
    "panewise.spec.aside": ("set_aside",),
    "panewise.spec.prod": ("prodder", "prods_from", "prods_in"),
    "panewise.spec.punctuate": ("external", "in_band", "ordered_per", "schedule", "slack", "watermark"),
    "panewise.window_builders": (
        "ROW_NUMBER",
        "landmark_windows",
        "row_windows",
        "slide_by_tuple_windows",
        "sliding_windows",
        "tumbling_windows",
        "windows",
    ),
}
"""Where what is public is made. It is imported once it is asked for: what a worker of Spark needs of it takes half the
time of all, and a stream waits for that when it starts."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
