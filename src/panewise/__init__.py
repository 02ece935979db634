"""Find the stretches of a data stream that matter and compute over them, on Spark, from Python."""

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
from panewise.local.runner import segments_local
from panewise.plan import Plan
from panewise.spark.session import session
from panewise.spec.punctuate import external, in_band, ordered_per, schedule, slack, watermark

__all__ = [
    "CustomScheme",
    "DataError",
    "InputError",
    "JobError",
    "PanewiseError",
    "Plan",
    "SpecError",
    "aggregate_frames",
    "boundary_frames",
    "custom_frames",
    "delta_frames",
    "external",
    "in_band",
    "ordered_per",
    "schedule",
    "segments_local",
    "session",
    "session_frames",
    "slack",
    "threshold_frames",
    "trend_frames",
    "watermark",
]
