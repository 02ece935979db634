"""Elements besides rows, in the schema of rows: what another stream promises or asks, the clock, a control folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from panewise.errors import InputError, SpecError, did_you_mean
from panewise.kernel.pack import FINAL, PROD, PROMISE, PROMISE_OF_KEY, TICK
from panewise.kernel.punctuate import is_per_key
from panewise.spark.control import remember
from panewise.spark.filling import promised
from panewise.spark.source import named, shard_of
from panewise.spec.prod import ProdStream
from panewise.spec.punctuate import External, Ordered, OrderedPer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["asking", "clocks", "commands", "ticks"]

_UNREAD = "unread"
"""A command that is no such JSON, as it stands there."""


def clocks(
    plan: Ordered,
    schema: T.StructType,
    spark: SparkSession,
    clock: DataFrame | None,
    shards: int,
    kind: T.DataType | None = None,
    timed: bool = False,
) -> list[DataFrame]:
    """What tells of the progress of elements: another stream's punctuations (of this type, or as `at`), a clock.

    It ticks where the plan needs it, or something else is `timed`.
    """
    found = []
    at_type = schema["at"].dataType
    keys = [f"k{i}" for i in range(len(plan.keys))]
    given = plan.punctuation
    if isinstance(given, External):
        source = given.source
        if given.time not in source.columns:
            raise InputError(
                f"`at` ({given.time!r}): the punctuation's stream has no such column. Name one of its own."
            )
        said = at_type if kind is None else kind
        until = promised(F.col(named(given.time)).cast(said), said, at_type)
        columns = {"kind": F.lit(PROMISE), "at": until}
        if given.per_key:
            pairs = zip(plan.keys, keys, strict=True)
            owners = [F.col(named(name)).cast(schema[key].dataType) for name, key in pairs]
            columns |= dict(zip(keys, owners, strict=True))
            columns |= {"kind": F.lit(PROMISE_OF_KEY), "shard": shard_of(owners, shards)}
        found.append(_elements(source, columns, schema))
    if ticks(plan) or timed:
        beats = clock
        if beats is None:
            beats = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
        told = {"kind": F.lit(TICK), "clock": F.unix_micros(F.col("timestamp"))}
        found.append(_elements(beats, told, schema))
    elif clock is not None:
        raise SpecError(
            "`clock` ticks for `idle_after`, a prodder and `set_aside`, and there is none of them. Leave it out."
        )
    return found


def asking(given: ProdStream, plan: Ordered, schema: T.StructType) -> DataFrame:
    """Another stream's prods, in the schema of elements."""
    source = given.source
    for option, name in (("until", given.time), *(("by", key) for key in given.keys)):
        if name is not None and name not in source.columns:
            raise InputError(f"`{option}` ({name!r}): the stream of prods has no such column. Name one of its own.")
    columns, named_by = {"kind": F.lit(PROD)}, dict[str, str]()
    if given.time is not None:
        named_by["at"] = given.time
    for name in given.keys:
        if name not in plan.keys:
            raise InputError(f"`by` ({name!r}) is no key of the plan. {did_you_mean(name, plan.keys)}")
        named_by[f"k{plan.keys.index(name)}"] = name
    clear = F.lit(True)
    for field, name in named_by.items():
        column = F.col(named(name))
        columns[field] = column.try_cast(schema[field].dataType)
        # what is not understood would ask for any
        clear &= column.isNull() | columns[field].isNotNull()
    return _elements(source.filter(clear), columns, schema)


def ticks(plan: Ordered) -> bool:
    """Whether time must pass, by the clock, for the plan to be told of a silence."""
    given = plan.punctuation
    return isinstance(given, OrderedPer) and given.idle_after is not None and not is_per_key(plan)


def commands(
    spark: SparkSession, control: str, schema: T.StructType, said: T.DataType | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """What is written to a control folder, in the schema of elements; promises are of this type, or as `at`."""
    remember(control)
    at = schema["at"].dataType
    said = at if said is None else said
    asks = F.col("kind") == "prod"
    kind = F.when(F.col("kind") == "final", F.lit(FINAL)).when(asks, F.lit(PROD)).otherwise(F.lit(PROMISE))
    until = F.col("until").try_cast(said)
    told = {"kind": kind, "at": promised(until, said, at)}
    if said != at:
        # of days, a prod asks for the one that it names
        told["at"] = F.when(asks, until.try_cast(at)).otherwise(told["at"])
    # what is not understood would ask for any
    others = F.array_except(F.map_keys("key"), F.array(*map(F.lit, keys)).cast("array<string>"))
    unclear = [F.col("until").isNotNull() & until.isNull(), F.size(others) > 0]
    for i, name in enumerate(keys):
        given = F.col("key")[name]
        told[f"k{i}"] = given.try_cast(schema[f"k{i}"].dataType)
        unclear.append(given.isNotNull() & told[f"k{i}"].isNull())
    known = F.col("kind").isin("final", "prod", "punctuation") & F.col(_UNREAD).isNull()
    known &= asks | F.col("key").isNull()
    clear = known & ~(asks & F.coalesce(reduce(or_, unclear), F.lit(False)))
    return _elements(_commands(spark, control).filter(clear), told, schema)


def _commands(spark: SparkSession, control: str) -> DataFrame:
    """What is written to a control folder, as text: Spark's JSON reader would take a time with a zone for none."""
    try:
        schema = f"kind string, until string, key map<string, string>, {_UNREAD} string"
        read = spark.readStream.schema(schema).option("columnNameOfCorruptRecord", _UNREAD).json(control)
        # one task for all of them; through Connect it is only now that the folder is looked for
        return read.select(*read.columns).coalesce(1)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise InputError(
            f"`control` ({control!r}): there is no such folder yet. Make it with pw.Control(spark, {control!r})."
        ) from None


def _elements(df: DataFrame, columns: Mapping[str, Column], schema: T.StructType) -> DataFrame:
    """Control rows in the schema of elements: what they do not name is null, or the first shard."""
    filled = {"shard": F.lit(0), **columns}
    return df.select(*(filled.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in schema.fields))
