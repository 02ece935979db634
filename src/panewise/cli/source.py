"""The rows of a job: its source, read as a batch or as a stream."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from panewise.errors import JobError
from panewise.jobs import Job
from panewise.spec.job import FileSource, KafkaSource, Source, TableSource

__all__ = ["CONNECTORS", "read", "read_all", "read_stream", "said"]

CONNECTORS = ("org.apache.spark:spark-sql-kafka-0-10_2.13", "org.apache.spark:spark-avro_2.13")
"""What Spark needs besides to read Kafka, and then Avro in it; each in Spark's own version."""


def read_all(spark: SparkSession, job: Job) -> dict[str, DataFrame]:
    """The rows of a job by the table that names them; a source that is named twice is one DataFrame."""
    read_of: dict[Source, DataFrame] = {}
    for table, source in job.sources.items():
        if source not in read_of:
            read_of[source] = (read_stream if source.stream else read)(spark, source, table)
    return {table: read_of[source] for table, source in job.sources.items()}


def read(spark: SparkSession, source: Source, table: str = "source") -> DataFrame:
    """The rows of a source, as a batch; `table` is what names it in the job."""
    if isinstance(source, KafkaSource) or source.stream:
        raise JobError(f"[{table}] is a stream, and this takes a source that ends. Leave `stream` and [stream] out.")
    reader = spark.read.options(**dict(source.options))
    try:
        if isinstance(source, TableSource):
            return reader.table(source.table)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path, source.format)
    except (AnalysisException, ParseException) as error:
        raise JobError(_unreadable(source, error, table)) from None


def read_stream(spark: SparkSession, source: Source, table: str = "source") -> DataFrame:
    """The rows of a source and those that come later."""
    if isinstance(source, KafkaSource):
        return _read_kafka(spark, source, table)
    reader = spark.readStream.options(**dict(source.options))
    try:
        if isinstance(source, TableSource):
            return reader.table(source.table)
        # Spark infers no schema for a stream, so it is that of what is there already
        schema = source.schema or read(spark, replace(source, stream=False), table).schema
        return reader.schema(schema).load(source.path, source.format)
    except (AnalysisException, ParseException) as error:
        raise JobError(_unreadable(source, error, table)) from None


def _read_kafka(spark: SparkSession, source: KafkaSource, table: str) -> DataFrame:
    """The columns of the values, and where each came from: kafka_partition, kafka_offset, kafka_timestamp."""
    own = {"kafka.bootstrap.servers": source.servers, "subscribe": source.topic}
    # as with files, a stream begins with what is there already
    options = {"startingOffsets": "earliest", **dict(source.options), **own}
    try:
        read = spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise JobError(_missing(table, "Kafka", CONNECTORS[0], spark)) from None
    try:
        if source.value == "json":
            value = F.from_json(F.col("value").cast("string"), source.schema)
        else:
            # a value that can't be read is null, as with json: it is counted, and the stream goes on
            mode = F.create_map(F.lit("mode"), F.lit("PERMISSIVE"))
            value = F.call_function("from_avro", F.col("value"), F.lit(source.schema), mode)
        places = [F.col(name).alias(f"kafka_{name}") for name in ("partition", "offset", "timestamp")]
        rows = read.select(value.alias("value"), *places)
        return rows.select("value.*", *rows.columns[1:])
    except PySparkException as error:
        if (error.getCondition() or "").startswith("AVRO_NOT_LOADED"):
            raise JobError(_missing(table, "Avro", CONNECTORS[1], spark)) from None
        raise JobError(f"`schema` in [{table}] ({source.schema!r}) is none: {said(error)} Correct it.") from None


def _missing(table: str, what: str, connector: str, spark: SparkSession) -> str:
    return (
        f"[{table}] is {what}, and Spark's connector for it is not in this session. "
        f"Add --conf spark.jars.packages={connector}:{spark.version}, or its jars by spark.jars."
    )


def _unreadable(source: FileSource | TableSource, error: AnalysisException | ParseException, table: str) -> str:
    told, condition = said(error), error.getCondition()
    if isinstance(source, TableSource):
        if condition == "TABLE_OR_VIEW_NOT_FOUND":
            return f"`table` in [{table}] ({source.table!r}): Spark knows no such table. Check the name."
        return f"`table` in [{table}] ({source.table!r}) can't be read: {told} Check its name and options."
    if condition == "PATH_NOT_FOUND":
        return f"`path` in [{table}] ({source.path!r}): nothing is there. Check the path."
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return f"`path` in [{table}] ({source.path!r}) holds no {source.format} files. Check path and format."
    if isinstance(error, ParseException):
        return f'`schema` in [{table}] ({source.schema!r}) is none: {told} Write it as "name string, at timestamp".'
    return f"`path` in [{table}] ({source.path!r}) can't be read: {told} Check path, format and options."


def said(error: PySparkException) -> str:
    """What Spark says, its first line."""
    return (error.getMessage() or str(error)).strip().splitlines()[0]
