"""A job, explained."""

from __future__ import annotations

from dataclasses import replace

from panewise.cli.fill import fused, promised
from panewise.jobs import Job
from panewise.spec.aggregates import aggregates
from panewise.spec.explain import explain as explain_plan
from panewise.spec.explain_fill import Explained, explain_fill
from panewise.spec.job import FileSource, KafkaSource, Source, TableSource

__all__ = ["explain"]


def explain(job: Job) -> str:
    """What a job will find, and what it needs, in words; nothing is read for it."""
    if job.fill is None:
        return explain_plan(job.plan, dict(job.agg), None if job.stream is None else job.stream.prods)
    told, own = {}, dict(job.agg)
    for (name, table), source in zip(job.fill.named, list(job.sources.values())[1:], strict=True):
        calls, given = aggregates(dict(table.agg)), replace(table.filling, punctuation=promised(job, table))
        if fused(job, table):
            own |= {result: str(call.where(given.where)) for result, call in calls}
        origin = "the rows of [source]" if source == job.source else _origin(source)
        told[name] = Explained(given, calls, origin, source.stream, fused(job, table))
    parts = job.stream is not None and job.stream.emit == "fragments"
    whole = any(source.fused and source.filling.where is None for source in told.values())
    text = explain_fill(job.plan, told, own, stream=job.source.stream, every=job.fill.keep_empty or whole, parts=parts)
    if job.source.stream:
        return text
    return f"{text}\n\nWhere [source] holds segments that were found before, these are filled, and none are drawn."


def _origin(source: Source) -> str:
    match source:
        case FileSource():
            return f"{source.format} files in {source.path}"
        case TableSource():
            return f"the table {source.table}"
        case KafkaSource():
            return f"the topic {source.topic} of Kafka"
