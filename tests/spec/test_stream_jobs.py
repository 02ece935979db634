"""Jobs over streams: punctuation, sources that go on, and how they are run, there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panewise import builders
from panewise.errors import JobError, SpecError
from panewise.jobs import Job, job_from_toml, job_to_toml, plan_from_mapping, plan_to_mapping
from panewise.plan import Plan
from panewise.spec.duration import Duration
from panewise.spec.job import (
    ConsoleSink,
    FileSink,
    FileSource,
    KafkaSource,
    Plot,
    Source,
    StreamOptions,
    TableSource,
)
from panewise.spec.punctuate import (
    Punctuation,
    external,
    in_band,
    ordered_per,
    schedule,
    slack,
    watermark,
)

JOB = """\
[source]
format = "kafka"
servers = "broker-1:9092,broker-2:9092"
topic = "reports"
value = "json"
schema = "router string, rpt_time timestamp, drop_pct double"

[source.options]
startingOffsets = "earliest"

[plan]
scheme = "threshold_frames"
condition = "drop_pct > 0.3"
min_duration = "2 minutes"
by = ["router"]
at = "rpt_time"

[plan.punctuation]
kind = "slack"
amount = "10 seconds"

[agg]
top = "max(drop_pct)"

[stream]
checkpoint = "out/checkpoint"
emit = "fragments"
fragment_every = "1 minute"
shards = 64
late = "out/late"
trigger = "10 seconds"
control = "out/control"

[sink]
format = "parquet"
path = "out/segments"
"""

AVRO = '{"type": "record", "name": "report", "fields": []}'


def test_the_whole_job_and_back() -> None:
    job = job_from_toml(JOB)
    schema = "router string, rpt_time timestamp, drop_pct double"
    servers, options = "broker-1:9092,broker-2:9092", (("startingOffsets", "earliest"),)
    loss = builders.threshold_frames("drop_pct > 0.3", min_duration="2 minutes").by("router")
    assert job == Job(
        source=KafkaSource(servers, "reports", "json", schema, options),
        plan=loss.at("rpt_time", slack("10 seconds")),
        agg=(("top", "max(drop_pct)"),),
        sink=FileSink("parquet", "out/segments"),
        stream=StreamOptions(
            "out/checkpoint", "fragments", Duration(60_000_000), 64, "out/late", "10 seconds", "out/control"
        ),
    )
    assert job_to_toml(job) == JOB
    assert hash(job) == hash(job_from_toml(JOB))


def test_punctuation_on_one_line_is_the_same() -> None:
    table = '\n[plan.punctuation]\nkind = "slack"\namount = "10 seconds"\n'
    line = 'punctuation = {kind = "slack", amount = "10 seconds"}\n'
    assert job_from_toml(JOB.replace(table, line)) == job_from_toml(JOB)


# ---- punctuation

names = st.sampled_from(["sensor", "größe", 'a"b', "road"])
several = st.lists(names, min_size=1, max_size=3, unique=True)
lengths = st.integers(1, 10**15).map(Duration)
sizes = st.one_of(lengths, st.integers(1, 10**18), st.floats(1e-9, 1e300))
late = st.sampled_from(["generous", "consistent"])


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def of_one_kind(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Punctuation]:
    return st.builds(lambda a, b, per, word: slack(a, per=per, ahead_limit=b, late=word), kind, kind, several, late)


punctuations = st.one_of(
    st.builds(in_band, st.sampled_from(["done", "kind = 'end'"]), per_key=st.booleans()),
    st.builds(slack, sizes | st.just(0) | st.just(Duration(0)), late=late),
    of_one_kind(lengths),
    of_one_kind(st.integers(1, 9)),
    st.builds(slack, rows=st.integers(0, 100_000), late=late),
    st.builds(
        lambda sources, **options: ordered_per(*sources, **options),
        several,
        idle_after=optional(lengths),
        expect=optional(st.integers(1, 2**63 - 1)),
        ahead_limit=optional(sizes),
    ),
    st.builds(schedule, give_up_after=sizes),
    st.just(watermark()),
)


@given(punctuations)
def test_every_punctuation_and_back(told: Punctuation) -> None:
    plan = builders.session_frames(5).at("ts", told, tie_break="n")
    mapping = plan_to_mapping(plan)
    assert plan_from_mapping(mapping) == plan
    assert list(mapping)[-1] == "punctuation"


@given(punctuations)
def test_defaults_are_left_out(told: Punctuation) -> None:
    mapping = plan_to_mapping(builders.session_frames(5).at("ts", told))
    for name in mapping["punctuation"]:
        shorter = {key: value for key, value in mapping["punctuation"].items() if key != name}
        try:
            without = plan_from_mapping({**mapping, "punctuation": shorter})
        except (JobError, SpecError):
            continue
        assert without.punctuation != told, name


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (in_band("done"), {"kind": "in_band", "condition": "done"}),
        (in_band("done", per_key=True), {"kind": "in_band", "condition": "done", "per_key": True}),
        (slack("0 s"), {"kind": "slack", "amount": "0 seconds"}),
        (slack(0, late="consistent"), {"kind": "slack", "amount": 0, "late": "consistent"}),
        (slack(rows=0), {"kind": "slack", "rows": 0}),
        (slack(rows=9, late="consistent"), {"kind": "slack", "rows": 9, "late": "consistent"}),
        (
            slack(5, per="sensor", ahead_limit=9),
            {"kind": "slack", "amount": 5, "per": ["sensor"], "ahead_limit": 9},
        ),
        (ordered_per("a", "b"), {"kind": "ordered_per", "sources": ["a", "b"]}),
        (
            ordered_per("a", idle_after="30 s", expect=4, ahead_limit="1 h"),
            {
                "kind": "ordered_per",
                "sources": ["a"],
                "idle_after": "30 seconds",
                "expect": 4,
                "ahead_limit": "1 hour",
            },
        ),
        (schedule(give_up_after="5 min"), {"kind": "schedule", "give_up_after": "5 minutes"}),
        (watermark(), {"kind": "watermark"}),
    ],
    ids=repr,
)
def test_arguments_are_written_by_their_names(told: Punctuation, written: dict[str, Any]) -> None:
    plan = builders.session_frames(5).at("ts", told)
    assert plan_to_mapping(plan)["punctuation"] == written
    assert plan_from_mapping(plan_to_mapping(plan)) == plan


def test_one_name_is_a_list_of_one() -> None:
    def told(**options: Any) -> Punctuation | None:
        mapping = {"scheme": "session_frames", "gap": 5, "at": "ts", "punctuation": options}
        return plan_from_mapping(mapping).punctuation

    assert told(kind="ordered_per", sources="sensor") == ordered_per("sensor")
    assert told(kind="slack", amount=5, per="sensor", ahead_limit=9) == slack(5, per="sensor", ahead_limit=9)


def test_another_stream_cannot_be_written() -> None:
    plan = builders.session_frames(5).at("ts", external(object(), "upto"))
    with pytest.raises(JobError) as error:
        plan_to_mapping(plan)
    assert str(error.value) == (
        "`punctuation` (External(time='upto', per_key=False)) can't be written to a job file: it is another stream, "
        "which a job file can't name. Choose another one, or run the plan from Python."
    )


# ---- sources and how streams are run

PLAN = builders.session_frames(5).at("ts", slack(5))
SOURCES: list[Source] = [
    FileSource("parquet", "p", stream=True),
    FileSource("parquet", "p", "a int", (("maxFilesPerTrigger", "1"),), True),
    FileSource("csv", "p", "a int", stream=True),
    FileSource("json", "p", "a int", stream=True),
    TableSource("db.name", stream=True),
    TableSource("db.name", (("a", "b"),), True),
    KafkaSource("h:1", "t", "json", "a int"),
    KafkaSource("h:1", "t", "avro", AVRO, (("failOnDataLoss", "false"),)),
]
STREAMS = [
    StreamOptions("c"),
    StreamOptions("c", "fragments"),
    StreamOptions("c", "updates", 5),
    StreamOptions("c", "fragments", Duration(90_000_000), 1, "l", "250 milliseconds", "k"),
    StreamOptions("c", trigger="0 seconds", shards=1024),
]


@pytest.mark.parametrize("stream", STREAMS, ids=repr)
@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_every_stream_and_back(source: Source, stream: StreamOptions) -> None:
    job = Job(source, PLAN, (), ConsoleSink(), None, stream)
    assert job.source.stream
    assert job_from_toml(job_to_toml(job)) == job


@pytest.mark.parametrize("sink", [FileSink("parquet", "o"), FileSink("csv", "o", "overwrite"), ConsoleSink(5)])
def test_every_sink_and_back(sink: FileSink | ConsoleSink) -> None:
    job = Job(TableSource("t", stream=True), PLAN, (("n", "count(*)"),), sink, Plot("x", "p.png"), StreamOptions("c"))
    assert job_from_toml(job_to_toml(job)) == job


@pytest.mark.parametrize("source", [FileSource("parquet", "p"), TableSource("t"), FileSource("csv", "p")])
def test_sources_are_no_streams_unless_they_say_so(source: Source) -> None:
    assert not source.stream
    job = Job(source, PLAN)
    assert job_from_toml(job_to_toml(job)) == job
    said = job_to_toml(job).replace("[plan]", "stream = false\n\n[plan]", 1)
    assert job_from_toml(said) == job


def test_what_is_default_is_not_written() -> None:
    job = Job(TableSource("t", stream=True), PLAN, stream=StreamOptions("c"))
    assert '[source]\nformat = "table"\ntable = "t"\nstream = true\n' in job_to_toml(job)
    assert '[stream]\ncheckpoint = "c"\n\n[sink]' in job_to_toml(job)


@pytest.mark.parametrize(("given", "expected"), [("10 s", "10 seconds"), ("1.5 min", "90 seconds"), ("once", "once")])
def test_triggers(given: str, expected: str) -> None:
    job = job_from_toml(JOB.replace('trigger = "10 seconds"', f'trigger = "{given}"'))
    assert job.stream is not None
    assert job.stream.trigger == expected


# ---- what is refused

SESSION = '[plan]\nscheme = "session_frames"\ngap = 5\nat = "ts"\n'
TABLE = '[source]\nformat = "table"\ntable = "t"\n'
STREAM = TABLE + "stream = true\n"
CHECKPOINT = '[stream]\ncheckpoint = "c"\n'
KAFKA = '[source]\nformat = "kafka"\n'
IN_JSON = 'servers = "h:1"\ntopic = "t"\nvalue = "json"\nschema = "a int"\n'
POWER = "must be a power of two, at most 1024. Give 1, 2, 4, 8 and so on, or leave it out."
TRIGGER = (
    'must be "once" or a length of time. '
    'Write it as "once" to end with what there is, or as "10 seconds" to go on every so often.'
)
READS = 'a duration reads like "2 minutes", "1 hour 30 minutes" or "250 ms"'


def told(options: str) -> str:
    return f"{STREAM}{SESSION}punctuation = {{{options}}}\n{CHECKPOINT}"


def stream(options: str) -> str:
    return STREAM + SESSION + CHECKPOINT + options


def source(options: str) -> str:
    return f"[source]\n{options}\n{SESSION}{CHECKPOINT}"


ERRORS = [
    # ---- punctuation
    (told(""), '`kind` is missing in [plan.punctuation]. Add it, such as kind = "slack".'),
    (told("kind = 5"), "`kind` in [plan.punctuation] (5) must be text. Write it as text."),
    (
        told('kind = "slak"'),
        "`kind` in [plan.punctuation] ('slak') is no punctuation. Did you mean `slack`?",
    ),
    (
        told('kind = "zzz"'),
        "`kind` in [plan.punctuation] ('zzz') is no punctuation. "
        "Known: `in_band`, `ordered_per`, `schedule`, `slack`, `watermark`.",
    ),
    (
        told('kind = "external", source = "s", at = "t"'),
        "`kind` in [plan.punctuation] ('external') is another stream, which a job file can't name. "
        "Choose another kind, or run the plan from Python.",
    ),
    (
        told('kind = "slack", amnt = "1 s"'),
        "`amnt` in [plan.punctuation] is not an option of slack. Did you mean `amount`?",
    ),
    (
        told('kind = "watermark", amount = "1 s"'),
        "`amount` in [plan.punctuation] is not an option of watermark. Known: `kind`.",
    ),
    (
        told('kind = "in_band"'),
        "`condition` is missing in [plan.punctuation]: in_band can't do without it. Add `condition`.",
    ),
    (
        told('kind = "ordered_per"'),
        "`sources` is missing in [plan.punctuation]: ordered_per can't do without it. Add `sources`.",
    ),
    (
        told('kind = "ordered_per", sources = []'),
        "`sources` () must name the columns that tell sources apart, at least one. "
        'Write them as ordered_per("sensor").',
    ),
    (
        told('kind = "ordered_per", sources = [5]'),
        "`sources` in [plan.punctuation] (5) must be text. Write it as text.",
    ),
    (
        told('kind = "schedule"'),
        "`give_up_after` is missing in [plan.punctuation]: schedule can't do without it. Add `give_up_after`.",
    ),
    (
        told('kind = "schedule", give_up_after = 5'),
        "`give_up_after` (5) gives up expected readings, and the scheme expects none. "
        "Add `expect_every` to it, or use slack instead of schedule.",
    ),
    (
        told('kind = "in_band", condition = "done", per_key = true'),
        "`per_key` (True) promises for one key at a time, and the plan has no keys. "
        'Add .by("column"), or leave `per_key` out.',
    ),
    (
        STREAM + SESSION + 'punctuation = "slack"\n' + CHECKPOINT,
        "`punctuation` in [plan] ('slack') must be a table. Write it as a table.",
    ),
    (
        TABLE + '[plan]\nscheme = "session_frames"\ngap = 5\npunctuation = {kind = "watermark"}\n',
        "`punctuation` in [plan] says how far `at` has come. Add `at`.",
    ),
    # ---- sources
    (
        source('format = "table"\ntable = "t"\nstream = "yes"'),
        "`stream` in [source] ('yes') must be true or false. Write it without quotes.",
    ),
    *(
        (
            source(f'format = "{form}"\npath = "p"\nstream = true'),
            f"`schema` is missing in [source]: Spark reads a stream of {form} files only by a schema that is given. "
            'Add it, such as schema = "router string, rpt_time timestamp".',
        )
        for form in ("csv", "json")
    ),
    (
        source('format = "table"\ntable = "t"\nsteam = true'),
        "`steam` in [source] is not an option of a table source. Did you mean `stream`?",
    ),
    (
        source('format = "table"\ntable = "t"\ntopic = "t"'),
        "`topic` in [source] is not an option of a table source. Known: `format`, `options`, `stream`, `table`.",
    ),
    (
        KAFKA + "stream = true\n" + SESSION + CHECKPOINT,
        "`stream` in [source] is not an option of a kafka source. "
        "Known: `format`, `options`, `schema`, `servers`, `topic`, `value`.",
    ),
    (
        KAFKA + SESSION + CHECKPOINT,
        '`servers` is missing in [source]. Add it, such as servers = "localhost:9092".',
    ),
    (
        KAFKA + 'servers = "h:1"\n' + SESSION + CHECKPOINT,
        '`topic` is missing in [source]. Add it, such as topic = "reports".',
    ),
    (
        KAFKA + 'servers = "h:1"\ntopic = "t"\n' + SESSION + CHECKPOINT,
        '`value` is missing in [source]. Add it, such as value = "json".',
    ),
    (
        KAFKA + IN_JSON.replace("json", "xml") + SESSION + CHECKPOINT,
        '`value` in [source] (\'xml\') must be one of "json", "avro". Choose one of these.',
    ),
    (
        KAFKA + 'servers = "h:1"\ntopic = "t"\nvalue = "json"\n' + SESSION + CHECKPOINT,
        '`schema` is missing in [source]. Add it, such as schema = "router string, rpt_time timestamp".',
    ),
    (
        KAFKA + 'servers = "h:1"\ntopic = "t"\nvalue = "avro"\n' + SESSION + CHECKPOINT,
        "`schema` is missing in [source]. "
        """Add it, such as schema = '{"type": "record", "name": "report", "fields": [...]}'.""",
    ),
    (
        KAFKA + IN_JSON.replace("json", "avro") + SESSION + CHECKPOINT,
        "`schema` in [source] ('a int') is not JSON, which an Avro schema is: "
        "Expecting value: line 1 column 1 (char 0). "
        """Write schema = '{"type": "record", "name": "report", "fields": [...]}'.""",
    ),
    *(
        (
            KAFKA + IN_JSON + f'[source.options]\n"{option}" = "x"\n' + SESSION + CHECKPOINT,
            f"`{option}` in [source.options] is said by `{own}`. Put it above, into [source], as `{own}`.",
        )
        for option, own in (("kafka.bootstrap.servers", "servers"), ("subscribe", "topic"))
    ),
    (
        KAFKA + IN_JSON + '[source.options]\nschema = "a int"\n' + SESSION + CHECKPOINT,
        "`schema` in [source.options] is not an option of Spark's reader. Put it above, into [source].",
    ),
    # ---- how a stream is run
    *(
        (
            text,
            '[stream] is missing: a stream needs a checkpoint. Add [stream] with checkpoint = "out/checkpoint".',
        )
        for text in (STREAM + SESSION, KAFKA + IN_JSON + SESSION)
    ),
    (
        TABLE + SESSION + CHECKPOINT,
        "[stream] says how a stream is run, and [source] is none. Add stream = true to it, or leave [stream] out.",
    ),
    (STREAM + SESSION + "[strem]\n", "[strem] is not a table of a job. Did you mean `stream`?"),
    (
        STREAM + SESSION + "[stream]\n",
        '`checkpoint` is missing in [stream]. Add it, such as checkpoint = "out/checkpoint".',
    ),
    (stream("chekpoint = 5\n"), "`chekpoint` in [stream] is not an option of a stream. Did you mean `checkpoint`?"),
    (
        STREAM + SESSION + "[stream]\ncheckpoint = 5\n",
        "`checkpoint` in [stream] (5) must be text. Write it as text.",
    ),
    (
        stream('emit = "partial"'),
        '`emit` in [stream] (\'partial\') must be one of "final", "fragments", "updates". Choose one of these.',
    ),
    (
        stream('fragment_every = "1 minute"'),
        '`fragment_every` (1 minute) says how often parts are sent, and emit="final" sends none. '
        'Use emit="fragments" or "updates", or leave `fragment_every` out.',
    ),
    (
        stream('emit = "fragments"\nfragment_every = "5"'),
        f"`fragment_every` ('5') can't be read: {READS}. "
        "Units: microsecond, millisecond, second, minute, hour, day, week.",
    ),
    *((stream(f"shards = {n}"), f"`shards` in [stream] ({n}) {POWER}") for n in (0, -2, 3, 2048)),
    (stream('shards = "4"'), "`shards` in [stream] ('4') must be a whole number. Write it as a whole number."),
    *(
        (stream(f'trigger = "{text}"'), f"`trigger` in [stream] ({text!r}) {TRIGGER}")
        for text in ("ones", "", "10", "-1 s")
    ),
    (stream("trigger = 10"), "`trigger` in [stream] (10) must be text. Write it as text."),
    (stream("late = true"), "`late` in [stream] (True) must be text. Write it as text."),
    (stream("control = 5"), "`control` in [stream] (5) must be text. Write it as text."),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[message[:70] for _, message in ERRORS])
def test_errors(text: str, message: str) -> None:
    with pytest.raises((JobError, SpecError)) as error:
        job_from_toml(text)
    assert str(error.value) == message


@pytest.mark.parametrize("stream", [True, False])
def test_a_job_that_contradicts_itself_is_not_written(stream: bool) -> None:
    job = Job(TableSource("t", stream=stream), PLAN, stream=None if stream else StreamOptions("c"))
    with pytest.raises(JobError, match=r"^\[stream\] is missing" if stream else r"^\[stream\] says how"):
        job_to_toml(job)


def test_a_batch_job_may_have_a_punctuation() -> None:
    plan: Plan = builders.session_frames(5).at("ts", in_band("kind = 'end'"))
    job = Job(TableSource("t"), plan)
    assert job_from_toml(job_to_toml(job)) == job
