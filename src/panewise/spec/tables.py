"""The tables of a job file, there and back: [source], [plan.punctuation], [stream], [sink], [plot]."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from panewise.errors import JobError, SpecError
from panewise.spec.codec import Table
from panewise.spec.duration import Duration, amount, written
from panewise.spec.emit import MODES, emit
from panewise.spec.job import (
    MAX_SHARDS,
    SCREEN,
    ConsoleSink,
    FileSink,
    FileSource,
    KafkaSource,
    Plot,
    Sink,
    Source,
    StreamOptions,
    TableSource,
)
from panewise.spec.prod_tables import aside_from_value, aside_to_value, prods_from_value, prods_to_value
from panewise.spec.punctuate import (
    External,
    InBand,
    OrderedPer,
    Passed,
    Punctuation,
    Scheduled,
    SlackRows,
    SlackTime,
    Watermark,
    in_band,
    ordered_per,
    schedule,
    slack,
    watermark,
)

__all__ = [
    "SOURCE_KEYS",
    "plot_from_table",
    "plot_to_mapping",
    "punctuation_from_table",
    "punctuation_to_mapping",
    "sink_from_table",
    "sink_to_mapping",
    "source_from_table",
    "source_to_mapping",
    "stream_from_table",
    "stream_to_mapping",
]

_KEYS = {
    "parquet": ("path", "schema", "stream"),
    "csv": ("path", "schema", "stream"),
    "json": ("path", "schema", "stream"),
    "table": ("table", "stream"),
    "kafka": ("servers", "topic", "value", "schema"),
}
SOURCE_KEYS = tuple(dict.fromkeys(["format", *(key for keys in _KEYS.values() for key in keys), "options"]))
"""What says where rows come from."""

_DDL = 'schema = "router string, rpt_time timestamp"'
_AVRO = """schema = '{"type": "record", "name": "report", "fields": [...]}'"""
_OWN_OF_KAFKA = {"kafka.bootstrap.servers": "servers", "subscribe": "topic"}
_PUNCTUATIONS: dict[str, Callable[..., Punctuation]] = {
    "slack": slack,
    "in_band": in_band,
    "ordered_per": ordered_per,
    "schedule": schedule,
    "watermark": watermark,
}


def source_from_table(table: Table) -> Source:
    """Where rows come from."""
    form = table.word("format", tuple(_KEYS))
    table.only(f"a {form} source", ["format", *_KEYS[form], "options"])
    options = Table(f"{table.name}.options", table.optional("options", dict, {}))
    if "schema" in options.content:
        raise JobError(
            f"`schema` in [{options.name}] is not an option of Spark's reader. Put it above, into [{table.name}]."
        )
    given = tuple((name, options.text(name)) for name in options.content)
    if form == "kafka":
        return _kafka(table, given)
    stream = table.flag("stream")
    if form == "table":
        return TableSource(table.required("table", str, 'table = "db.name"'), given, stream)
    path, schema = table.required("path", str, 'path = "data/router"'), table.optional("schema", str)
    if stream and schema is None and form != "parquet":
        raise JobError(
            f"`schema` is missing in [{table.name}]: Spark reads a stream of {form} files only by a schema that is "
            f"given. Add it, such as {_DDL}."
        )
    return FileSource(form, path, schema, given, stream)


def _kafka(table: Table, options: tuple[tuple[str, str], ...]) -> KafkaSource:
    for name, _ in options:
        if name in _OWN_OF_KAFKA:
            own = _OWN_OF_KAFKA[name]
            raise JobError(
                f"`{name}` in [{table.name}.options] is said by `{own}`. Put it above, into [{table.name}], as `{own}`."
            )
    servers = table.required("servers", str, 'servers = "localhost:9092"')
    topic = table.required("topic", str, 'topic = "reports"')
    value = table.word("value", ("json", "avro"))
    schema = table.required("schema", str, _AVRO if value == "avro" else _DDL)
    if value == "avro":
        try:
            json.loads(schema)
        except json.JSONDecodeError as e:
            raise JobError(
                f"`schema` in [{table.name}] ({schema!r}) is not JSON, which an Avro schema is: {e}. Write {_AVRO}."
            ) from None
    return KafkaSource(servers, topic, value, schema, options)


def source_to_mapping(source: Source) -> dict[str, Any]:
    """The [source] table of a source, or what is about it in [fill]."""
    mapping: dict[str, Any]
    match source:
        case FileSource():
            mapping = {"format": source.format, "path": source.path, "schema": source.schema}
        case TableSource():
            mapping = {"format": "table", "table": source.table}
        case KafkaSource():
            mapping = {"format": "kafka", "servers": source.servers, "topic": source.topic}
            mapping |= {"value": source.value, "schema": source.schema}
    if source.stream and not isinstance(source, KafkaSource):
        mapping["stream"] = True
    if source.options:
        mapping["options"] = dict(source.options)
    return _said(mapping)


def punctuation_from_table(table: Table) -> Punctuation:
    """How progress is known: `kind` names the constructor, the rest are its arguments."""
    made: Punctuation = table.made("punctuation", _PUNCTUATIONS, "external")
    return made


def punctuation_to_mapping(told: Punctuation) -> dict[str, Any]:
    """The [plan.punctuation] table of a punctuation, without what is default anyway."""
    match told:
        case InBand():
            return _said({"kind": "in_band", "condition": told.condition, "per_key": told.per_key or None})
        case SlackTime():
            size, limit = written(told.amount), written(told.ahead_limit)
            clocks = {"per": list(told.per) or None, "ahead_limit": limit}
            return _said({"kind": "slack", "amount": size, "late": _late(told.late), **clocks})
        case SlackRows():
            return _said({"kind": "slack", "rows": told.rows, "late": _late(told.late)})
        case OrderedPer():
            idle, limit = written(told.idle_after), written(told.ahead_limit)
            sources = {"sources": list(told.sources), "idle_after": idle, "expect": told.expect, "ahead_limit": limit}
            return _said({"kind": "ordered_per", **sources})
        case Scheduled():
            return {"kind": "schedule", "give_up_after": written(told.give_up_after)}
        case Watermark():
            return {"kind": "watermark"}
        case External() | Passed():
            raise JobError(
                f"`punctuation` ({told}) can't be written to a job file: it is another stream, which a job file can't "
                "name. Choose another one, or run the plan from Python."
            )


def _late(word: str) -> str | None:
    return None if word == "generous" else word


def stream_from_table(table: Table) -> StreamOptions:
    """How a stream is run."""
    table.only("a stream", [field.name for field in fields(StreamOptions)])
    sent = emit(table.word("emit", MODES, "final"), table.content.get("fragment_every"))
    return StreamOptions(
        checkpoint=table.required("checkpoint", str, 'checkpoint = "out/checkpoint"'),
        emit=sent.mode,
        fragment_every=sent.every,
        shards=_shards(table.optional("shards", int)),
        late=table.optional("late", str),
        trigger=_trigger(table.optional("trigger", str, "once")),
        control=table.optional("control", str),
        prods=prods_from_value("stream.prods", table.content.get("prods", False)),
        set_aside=aside_from_value("stream.set_aside", table.content.get("set_aside", False)),
    )


def _shards(count: int | None) -> int | None:
    if count is not None and not (1 <= count <= MAX_SHARDS and count.bit_count() == 1):
        raise JobError(
            f"`shards` in [stream] ({count}) must be a power of two, at most {MAX_SHARDS}. "
            "Give 1, 2, 4, 8 and so on, or leave it out."
        )
    return count


def _trigger(text: str) -> str:
    if text == "once":
        return text
    try:
        return str(amount("trigger", Duration.parse(text), zero=True))
    except SpecError:
        raise JobError(
            f'`trigger` in [stream] ({text!r}) must be "once" or a length of time. '
            'Write it as "once" to end with what there is, or as "10 seconds" to go on every so often.'
        ) from None


def stream_to_mapping(stream: StreamOptions) -> dict[str, Any]:
    """The [stream] table of a stream, without what is default anyway."""
    mapping = {
        "checkpoint": stream.checkpoint,
        "emit": None if stream.emit == "final" else stream.emit,
        "fragment_every": written(stream.fragment_every),
        "shards": stream.shards,
        "late": stream.late,
        "trigger": None if stream.trigger == "once" else stream.trigger,
        "control": stream.control,
        "prods": None if stream.prods is None else prods_to_value(stream.prods),
        "set_aside": None if stream.set_aside is None else aside_to_value(stream.set_aside),
    }
    return _said(mapping)


def sink_from_table(table: Table) -> Sink:
    """Where segments go."""
    # what has no place to go to is shown
    shown = None if {"path", "mode"} & set(table.content) else "console"
    form = table.word("format", ("console", "parquet", "csv"), shown)
    table.only(f"a {form} sink", ["format", *(("limit", "order") if form == "console" else ("path", "mode"))])
    if form == "console":
        limit = table.optional("limit", int, SCREEN.limit)
        if limit < 1:
            raise JobError(f"`limit` in [sink] ({limit}) must be at least 1. Give the number of segments to show.")
        return ConsoleSink(limit, table.optional("order", str))
    path = table.required("path", str, 'path = "out/segments"')
    return FileSink(form, path, table.word("mode", ("error", "overwrite"), "error"))


def sink_to_mapping(sink: Sink) -> dict[str, Any]:
    """The [sink] table of a sink, without what is default anyway."""
    match sink:
        case FileSink():
            mode = None if sink.mode == "error" else sink.mode
            return _said({"format": sink.format, "path": sink.path, "mode": mode})
        case ConsoleSink():
            limit = None if sink.limit == SCREEN.limit else sink.limit
            return _said({"format": "console", "limit": limit, "order": sink.order})


def plot_from_table(table: Table) -> Plot:
    """What is drawn."""
    table.only("a plot", ["value", "path", "keys", "threshold", "fill"])
    value, path = table.required("value", str, 'value = "speed"'), table.required("path", str, 'path = "out/plot.png"')
    keys = table.list("keys", str) if not _whole(table.content.get("keys")) else table.list("keys", int)
    return Plot(value, path, keys, table.optional("threshold", float), _plotted(table))


def _plotted(table: Table) -> tuple[tuple[str, str], ...]:
    """What is drawn of the rows that fill: text for those of [fill], a table for those of each [fill.NAME]."""
    given = table.content.get("fill", {})
    if not isinstance(given, dict):
        return (("", table.optional("fill", str)),)
    named = Table(f"{table.name}.fill", given)
    return tuple((name, named.optional(name, str)) for name in given)


def _whole(keys: object) -> bool:
    return bool(keys) and all(isinstance(key, int) for key in (keys if isinstance(keys, list) else [keys]))


def plot_to_mapping(plot: Plot) -> dict[str, Any]:
    """The [plot] table of a plot."""
    keys, fill = list(plot.keys) or None, dict(plot.fill)
    shown = {"keys": keys, "value": plot.value, "path": plot.path, "threshold": plot.threshold}
    return _said({**shown, "fill": fill.get("", fill) or None})


def _said(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}
