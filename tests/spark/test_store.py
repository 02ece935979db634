"""Files in a store that Spark and pyarrow both reach: workers read those too, with what Spark's settings say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

import panewise as pw
from panewise.spark import framing
from panewise.spark.batch import path_of
from panewise.spark.framescan import FrameScan, frame_scan_of
from panewise.spark.source import apply
from panewise.spark.store import s3
from panewise.spark.stream import path_of as path_of_stream
from spark.tables import rows
from spark.test_framing import AGG, PLANS, laid, readings, same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S3 = Path(__file__).parents[2] / ".venv" / "s3"
BUCKET, REGION = "readings", "eu-west-1"
KEYS = {"access.key": "someone", "secret.key": "secret"}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "SMALL", -1)


@pytest.fixture(scope="module")
def client(spark: SparkSession) -> Iterator[Any]:
    """An S3 of our own, on loopback, with a bucket that Spark has settings for."""
    if not (S3 / ".ready").exists():
        pytest.skip(f"no reader of S3 in {S3}: scripts/s3.sh fetches it and says why where it cannot")
    # of every request it would tell
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    told = {**KEYS, "endpoint": endpoint, "endpoint.region": REGION, "path.style.access": "true"}
    named = {f"fs.s3a.bucket.{BUCKET}.{name}": value for name, value in told.items()}
    made = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEYS["access.key"],
        aws_secret_access_key=KEYS["secret.key"],
    )
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        made.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield made
    finally:
        for name in named:
            spark.conf.unset(name)
        server.stop()


def uploaded(spark: SparkSession, client: Any, folder: Path, name: str, tables: list[pa.Table]) -> DataFrame:
    """Tables as files of folders that name a day."""
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}", row_group_size=300)
        client.upload_file(str(folder / f"{i}"), BUCKET, f"{name}/day=2024-05-{1 + i:02}/a part.parquet")
    return spark.read.parquet(f"s3a://{BUCKET}/{name}")


@pytest.mark.parametrize("scheme", ["threshold", "sum"])
@pytest.mark.parametrize("how", ["names", "shuffled"])
def test_frames(spark: SparkSession, client: Any, tmp_path: Path, scheme: str, how: str) -> None:
    table = readings(7)
    df = uploaded(spark, client, tmp_path, f"frames {scheme} {how}", laid(table, how))
    plan = PLANS[scheme].by("k").at("t")
    scan = frame_scan_of(df, apply(plan, plan.asked(AGG), df).layout)
    assert isinstance(scan, FrameScan)
    assert scan.ordered == (how == "names")
    assert scan.rows.store.type_name == "s3"
    same(spark, df, plan, table)
    days = [date(2024, 5, 1 + i) for i, each in enumerate(laid(table, how)) for _ in range(len(each))]
    dated = pa.concat_tables(laid(table, how)).append_column("day", pa.array(days))
    same(spark, df, PLANS[scheme].by("k", "day").at("t"), dated)


def test_fill(spark: SparkSession, client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = readings(7)
    df = uploaded(spark, client, tmp_path, "fill", laid(table, "names"))
    plan = PLANS["threshold"].by("k").at("t")
    framing = spark.createDataFrame(table)
    fill = plan.fill(framing, df)
    fill.explain(AGG)
    assert "scan lane: 5 Parquet files" in capsys.readouterr().out
    found = rows(fill.agg(AGG).toArrow())
    assert found == rows(plan.fill(framing, df.filter("true")).agg(AGG).toArrow())
    assert len(found) > 7


def test_stream(spark: SparkSession, client: Any, tmp_path: Path) -> None:
    table = readings(7)
    stored = uploaded(spark, client, tmp_path, "a stream", laid(table, "names"))
    df = spark.readStream.schema(stored.schema).parquet(f"s3a://{BUCKET}/a stream")
    plan = PLANS["threshold"].by("k", "day").at("t", pw.slack("0 seconds"))
    assert "scan lane" in path_of_stream(plan, df)
    found = []
    for i, given in enumerate((df, df.where("true"))):
        query = (
            plan.segments(given, AGG, shards=2)
            .writeStream.option("checkpointLocation", str(tmp_path / f"state {i}"))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: found.append(rows(batch.toArrow())))
        )
        query.start().awaitTermination()
    assert found[0] == found[1]
    assert len(found[0]) > 7


def test_what_spark_alone_can_reach(spark: SparkSession, client: Any, tmp_path: Path) -> None:
    """It is read by Spark, and `explain` says why."""
    table = readings(7)
    df, plan = uploaded(spark, client, tmp_path, "vault", laid(table, "names")), PLANS["threshold"].by("k").at("t")
    assert "Parquet" in path_of(plan, df)
    provider = f"fs.s3a.bucket.{BUCKET}.aws.credentials.provider"
    spark.conf.set(provider, "com.example.Vault")
    try:
        assert "fs.s3a.aws.credentials.provider is com.example.Vault" in path_of(plan, df)
        same(spark, df, plan, table)
    finally:
        spark.conf.unset(provider)


def test_files_in_several_stores(spark: SparkSession, client: Any, tmp_path: Path) -> None:
    table, here = readings(7), tmp_path / "here"
    here.mkdir()
    for name in ("there", "here/rows.parquet"):
        pq.write_table(table, tmp_path / name)
    client.upload_file(str(tmp_path / "there"), BUCKET, "there/rows.parquet")
    both = spark.read.parquet(str(here), f"s3a://{BUCKET}/there")
    assert "files are in several stores" in path_of(PLANS["threshold"].by("k").at("t"), both)


def test_what_is_gone_when_it_is_to_be_read(spark: SparkSession, client: Any, tmp_path: Path) -> None:
    table = readings(7)
    df, plan = uploaded(spark, client, tmp_path, "gone", laid(table, "in order")), PLANS["threshold"].by("k").at("t")
    found = plan.segments(df)
    client.delete_object(Bucket=BUCKET, Key="gone/day=2024-05-02/a part.parquet")
    with pytest.raises(Exception, match=r"can't be read by a worker .* or let Spark read it: `df.where"):
        found.collect()


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ({"endpoint.region": REGION, **KEYS}, {"region": REGION, "access_key": "someone", "secret_key": "secret"}),
        (
            {"endpoint": "store:9000", "connection.ssl.enabled": "FALSE"},
            {"region": "us-east-1", "endpoint_override": "store:9000", "scheme": "http"},
        ),
        ({"endpoint": "store"}, {"region": "us-east-1", "endpoint_override": "store", "scheme": "https"}),
        ({"endpoint": "s3.eu-west-1.amazonaws.com", "endpoint.region": REGION}, {"region": REGION}),
        ({"endpoint": "s3.amazonaws.com", "endpoint.region": REGION}, {"region": REGION}),
        (
            {"endpoint": "https://s3-fips.us-gov-west-1.amazonaws.com", "endpoint.region": "us-gov-west-1"},
            {
                "region": "us-gov-west-1",
                "endpoint_override": "s3-fips.us-gov-west-1.amazonaws.com",
                "scheme": "https",
            },
        ),
        (
            {**KEYS, "aws.credentials.provider": "a.IAMInstanceCredentialsProvider", "endpoint.region": REGION},
            {"region": REGION},
        ),
        (
            {**KEYS, "session.token": "token", "endpoint.region": REGION},
            {"region": REGION, "access_key": "someone", "secret_key": "secret", "session_token": "token"},
        ),
        (
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider", "endpoint": "x"},
            {"region": "us-east-1", "endpoint_override": "x", "anonymous": True},
        ),
    ],
)
def test_settings(told: dict[str, str], given: dict[str, Any]) -> None:
    assert s3("bucket", lambda name: told.get(name, "")) == S3FileSystem(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [("encryption.algorithm", "SSE-C"), ("encryption.algorithm", "CSE-KMS"), ("endpoint.fips", "true")],
)
def test_what_is_left_to_spark(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"fs.s3a.{name} is {value}"):
        s3("bucket", lambda asked: {name: value, "endpoint": "x"}.get(asked, ""))
