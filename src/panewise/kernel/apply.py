"""Apply without Spark: conditions and framing values of each row, from a small part of Spark's SQL.

What is evaluated is evaluated as Spark does (ANSI mode); what is not known for sure is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from panewise.errors import DataError, InputError, did_you_mean
from panewise.kernel.sqlmath import (
    absolute,
    arithmetic,
    compare,
    extreme,
    negate,
    null_safe_equal,
    rounded,
    whole,
)
from panewise.kernel.sqltypes import Unsupported, cast, spark_array, wider

__all__ = ["evaluate"]

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}
_MICROS = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_MICROS |= {"DAY": 86_400_000_000, "WEEK": 604_800_000_000}
# what sqlglot may say about a node; anything else (symmetric, distinct, ...) would change its meaning
_ARGUMENTS = {"decimals", "default", "expression", "expressions", "false", "high", "ifs", "ignore_nulls", "is_null"}
_ARGUMENTS |= {"is_nvl", "is_string", "low", "table", "this", "to", "true", "typed", "unit"}
_MEANT = {exp.Like: {"negate"}, exp.Cast: {"safe"}, exp.TryCast: {"safe"}, exp.Div: {"safe"}}


def evaluate(name: str, text: str, table: pa.Table, exact: bool = False) -> pa.Array:
    """The value of an SQL expression for each row; `name` is the option it comes from.

    Decimals come back as float64, unless they must be `exact`.

    >>> evaluate("condition", "drop_pct > 0.3", pa.table({"drop_pct": [0.1, 0.5, None]})).to_pylist()
    [False, True, None]
    """
    where = f"`{name}` ({text!r})"
    node = _parse(where, text)
    try:
        if "\\" in text:
            raise Unsupported("a backslash")
        result = _walk(node, _Rows.of(table, where))
    except Unsupported as e:
        raise InputError(
            f"`{text}`: the local runner can't evaluate {e}. "
            "Use plan.segments on Spark, which takes any SQL expression."
        ) from None
    except DataError as e:
        raise DataError(f"{where}: {e}") from None
    return cast(result, pa.float64()) if pa.types.is_decimal(result.type) and not exact else result


@lru_cache(256)
def _select(text: str) -> Any:
    """Parsed once: pages are many, texts are few."""
    return sqlglot.parse_one(f"SELECT {text}", dialect="spark")


def _parse(where: str, text: str) -> Any:
    try:
        select = _select(text)
    except (ParseError, TokenError) as e:
        error = e.errors[0] if isinstance(e, ParseError) and e.errors else {}
        near = f" near {error['highlight']!r}" if error.get("highlight") else ""
        raise InputError(f"{where} is not an SQL expression: it can't be read{near}. Correct the text.") from None
    given = [key for key, value in select.args.items() if value]
    if given != ["expressions"] or len(select.expressions) != 1 or not isinstance(select, exp.Select):
        raise InputError(f'{where} must be one SQL expression. Write one, such as "speed > 30".')
    node = select.expressions[0]
    if isinstance(node, exp.Alias):
        raise InputError(f"{where} is not an SQL expression: it can't be read near {node.alias!r}. Correct the text.")
    return node


class _Rows:
    """The columns that an expression sees, and their time zone, which stands for Spark's session time zone."""

    def __init__(self, table: Any, where: str, zones: list[str]) -> None:
        self.table = table
        self.where = where
        self.zones = zones

    @staticmethod
    def of(table: Any, where: str) -> _Rows:
        times = [f.type for f in table.schema if pa.types.is_timestamp(f.type)]
        return _Rows(table, where, sorted({t.tz for t in times if t.tz is not None}))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def only(self, mask: Any) -> _Rows:
        return _Rows(self.table.filter(mask), self.where, self.zones)

    def timestamp(self) -> Any:
        if len(self.zones) > 1:
            raise Unsupported(f"times in several zones ({', '.join(self.zones)})")
        return pa.timestamp("us", self.zones[0] if self.zones else None)

    def column(self, name: str) -> Any:
        names = self.table.column_names
        found = [i for i, n in enumerate(names) if n.lower() == name.lower()]
        if not found:
            raise InputError(f"{self.where}: no column `{name}`. {did_you_mean(name, names)}")
        if len(found) > 1:
            raise InputError(f"{self.where}: several columns are called `{name}`, but for case. Rename one of them.")
        return spark_array(self.table.column(found[0]))

    def constant(self, value: object, kind: Any) -> Any:
        if pa.types.is_primitive(kind) and len(self) <= _PIECE:
            return _repeated(value, repr(value), kind, len(self))
        return pa.repeat(pa.scalar(value, kind), len(self))


_PIECE = 1 << 19
"""Constants for more rows are not kept."""


@lru_cache(8)
def _repeated(value: object, _text: str, kind: Any, count: int) -> Any:
    """A constant for many rows: tables come in pieces of one size; by its text, -0.0 is not 0.0."""
    return pa.repeat(pa.scalar(value, kind), count)


def _walk(node: Any, rows: _Rows) -> Any:
    kind = type(node)
    known = _ARGUMENTS | _MEANT.get(kind, set())
    if any(value and name not in known for name, value in node.args.items()):
        raise Unsupported(_sql(node))
    if kind in _COMPARISONS:
        left, right = _walk(node.this, rows), _walk(node.expression, rows)
        beyond = _is_beyond(node.this, left, right) or _is_beyond(node.expression, right, left)
        if beyond and kind not in (exp.EQ, exp.NEQ):
            # Spark takes the answer for certain, even where the other side is null
            raise Unsupported(_sql(node))
        return compare(_COMPARISONS[kind], left, right)
    if kind in _ARITHMETIC:
        digits = (_digits(node.this), _digits(node.expression))
        return arithmetic(_ARITHMETIC[kind], _walk(node.this, rows), _walk(node.expression, rows), digits)
    if kind in _NODES:
        return _NODES[kind](node, rows)
    raise Unsupported(_sql(node))


def _sql(node: Any) -> str:
    return f"`{node.sql('spark', normalize_functions=False)}`"


def _condition(node: Any, rows: _Rows) -> Any:
    array = _walk(node, rows)
    if pa.types.is_null(array.type):
        return cast(array, pa.bool_())
    if not pa.types.is_boolean(array.type):
        raise Unsupported(f"{_sql(node)} as a condition")
    return array


def _where(mask: Any, node: Any, rows: _Rows, walk: Callable[[Any, _Rows], Any] = _walk) -> Any:
    """The value of a node where the mask is true, null elsewhere: what is not asked for can't fail, here or later."""
    try:
        value = walk(node, rows)
        return pc.if_else(mask, value, pa.scalar(None, value.type))
    except DataError:
        asked = walk(node, rows.only(mask))
        position = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
        return asked.take(pc.if_else(mask, position, pa.scalar(None, pa.int64())))


def _both(node: Any, rows: _Rows) -> Any:
    left = _condition(node.this, rows)
    return pc.and_kleene(left, _where(pc.fill_null(left, True), node.expression, rows, _condition))


def _either(node: Any, rows: _Rows) -> Any:
    left = _condition(node.this, rows)
    return pc.or_kleene(left, _where(pc.invert(pc.fill_null(left, False)), node.expression, rows, _condition))


def _choose(branches: list[tuple[Any, Any]], default: Any, rows: _Rows) -> Any:
    """The value of the first condition that holds, each evaluated only where the ones before it do not."""
    left = rows.constant(True, pa.bool_())
    chosen = []
    for condition, value in branches:
        holds = pc.and_(left, pc.fill_null(_where(left, condition, rows, _condition), False))
        chosen.append((holds, _where(holds, value, rows)))
        left = pc.and_not(left, holds)
    result = pa.nulls(len(rows)) if default is None else _where(left, default, rows)
    kind = result.type
    for _, value in reversed(chosen):
        kind = wider(value.type, kind)
    result = cast(result, kind)
    for holds, value in reversed(chosen):
        result = pc.if_else(holds, cast(value, kind), result)
    return result


def _case(node: Any, rows: _Rows) -> Any:
    subject = node.this
    conditions = [exp.EQ(this=subject, expression=i.this) if subject else i.this for i in node.args["ifs"]]
    values = [i.args["true"] for i in node.args["ifs"]]
    return _choose(list(zip(conditions, values, strict=True)), node.args.get("default"), rows)


def _if(node: Any, rows: _Rows) -> Any:
    if node.args.get("false") is None:
        raise Unsupported(_sql(node))
    return _choose([(node.this, node.args["true"])], node.args["false"], rows)


def _coalesce(node: Any, rows: _Rows) -> Any:
    result = _walk(node.this, rows)
    for other in node.expressions:
        value = _where(result.is_null(), other, rows)
        kind = wider(result.type, value.type)
        result = pc.coalesce(cast(result, kind), cast(value, kind))
    return result


def _nullif(node: Any, rows: _Rows) -> Any:
    value = _walk(node.this, rows)
    equal = pc.fill_null(compare("=", value, _walk(node.expression, rows)), False)
    return pc.if_else(equal, pa.scalar(None, value.type), value)


def _is(node: Any, rows: _Rows) -> Any:
    if isinstance(node.expression, exp.Null):
        return _walk(node.this, rows).is_null()
    if isinstance(node.expression, exp.Boolean):
        return null_safe_equal(_condition(node.this, rows), _walk(node.expression, rows))
    raise Unsupported(_sql(node))


def _between(node: Any, rows: _Rows) -> Any:
    value = _walk(node.this, rows)
    low, high = _walk(node.args["low"], rows), _walk(node.args["high"], rows)
    return pc.and_kleene(compare(">=", value, low), compare("<=", value, high))


def _in(node: Any, rows: _Rows) -> Any:
    if not node.expressions:
        raise Unsupported(_sql(node))
    values = [_walk(n, rows) for n in [node.this, *node.expressions]]
    kind = values[0].type
    for value in values[1:]:
        kind = wider(kind, value.type)
    subject, *others = (cast(value, kind) for value in values)
    result = rows.constant(False, pa.bool_())
    for other in others:
        result = pc.or_kleene(result, compare("=", subject, other))
    return result


def _column(node: Any, rows: _Rows) -> Any:
    if node.args.get("table") is not None or not isinstance(node.this, exp.Identifier):
        raise Unsupported(f"the nested column {_sql(node)}")
    return rows.column(node.name)


def _digits(node: Any) -> int | None:
    """How many digits an integer literal has; among decimals Spark gives it just that precision."""
    literal = node.this if isinstance(node, exp.Neg) else node
    is_whole = isinstance(literal, exp.Literal) and not literal.is_string and literal.this.isdigit()
    return len(literal.this.lstrip("0")) or 1 if is_whole else None


def _is_beyond(node: Any, value: Any, other: Any) -> bool:
    """Whether a decimal literal is no bigint, but stands beside one."""
    literal = node.this if isinstance(node, exp.Neg) else node
    beside = isinstance(literal, exp.Literal) and pa.types.is_decimal(value.type) and pa.types.is_integer(other.type)
    return bool(beside and Decimal(literal.this) > 2**63 - 1)


def _literal(node: Any, rows: _Rows, sign: str = "") -> Any:
    text = node.this
    if node.is_string:
        return rows.constant(text, pa.string())
    if "e" in text.lower():
        return rows.constant(float(sign + text), pa.float64())
    number = Decimal(sign + text)
    if text.isdigit() and abs(number) < 2**64:
        for kind in (pa.int32(), pa.int64()):
            half = 2 ** (kind.bit_width - 1)
            if -half <= number < half:
                return rows.constant(int(number), kind)
    scale = max(0, -int(number.as_tuple().exponent))
    precision = max(len(number.as_tuple().digits), scale)
    if precision > 38:
        raise Unsupported(f"a number of more than 38 digits ({text})")
    return rows.constant(number, pa.decimal128(precision, scale))


def _neg(node: Any, rows: _Rows) -> Any:
    literal = node.this
    if isinstance(literal, exp.Literal) and not literal.is_string:
        return _literal(literal, rows, "-")
    return negate(_walk(literal, rows))


def _cast(node: Any, rows: _Rows) -> Any:
    to = node.args["to"]
    name = to.this.name if hasattr(to.this, "name") else str(to.this)
    target = rows.timestamp() if name == "TIMESTAMPTZ" else _TYPES.get(name)
    if target is None or to.expressions:
        raise Unsupported(f"a cast to {to.sql('spark').lower()}")
    array = _walk(node.this, rows)
    if target == pa.float32() and array.type in (pa.int32(), pa.int64()) and not isinstance(node.parent, exp.Select):
        # where it is widened again, Spark leaves it out, and with it what it rounds
        raise Unsupported(f"a cast from {array.type} to float within an expression")
    # sqlglot reads Spark's cast as TryCast; a try_cast is marked safe
    return cast(array, target, strict=not node.args.get("safe"))


def _interval(node: Any, rows: _Rows) -> Any:
    unit = str(node.args["unit"]).upper().removesuffix("S") if node.args.get("unit") is not None else ""
    count = node.this.this if isinstance(node.this, exp.Literal) else ""
    if unit not in _MICROS or not re.fullmatch(r"-?[0-9]+", count):
        raise Unsupported(_sql(node))
    return rows.constant(int(count) * _MICROS[unit], pa.duration("us"))


def _like(node: Any, rows: _Rows) -> Any:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise Unsupported(_sql(node))
    result = pc.match_like(_text(node.this, rows), pattern.this)
    return pc.invert(result) if node.args.get("negate") else result


def _text(node: Any, rows: _Rows) -> Any:
    return cast(_walk(node, rows), pa.string())


def _letters(python: Callable[[str], str], arrow: Callable[[Any], Any]) -> Callable[[Any, _Rows], Any]:
    def change(node: Any, rows: _Rows) -> Any:
        text = _text(node.this, rows)
        if pc.all(pc.string_is_ascii(text)).as_py() is not False:
            return arrow(text)
        return pa.array([None if t is None else python(t) for t in text.to_pylist()], type=pa.string())

    return change


def _whole(node: Any, rows: _Rows) -> Any:
    if node.args.get("decimals") is not None or node.args.get("to") is not None:
        raise Unsupported(_sql(node))
    return whole("ceil" if isinstance(node, exp.Ceil) else "floor", _walk(node.this, rows))


def _round(node: Any, rows: _Rows) -> Any:
    places = node.args.get("decimals")
    text = "0" if places is None else places.sql()
    if not re.fullmatch(r"-?[0-9]+", text):
        raise Unsupported(_sql(node))
    return rounded(_walk(node.this, rows), int(text))


def _unix_micros(node: Any, rows: _Rows) -> Any:
    array = _walk(node.this, rows)
    if not pa.types.is_timestamp(array.type):
        raise Unsupported(f"unix_micros of {array.type}")
    return array.cast(pa.int64())


def _anonymous(node: Any, rows: _Rows) -> Any:
    name, arguments = node.name.lower(), node.expressions
    if name in ("isnull", "isnotnull") and len(arguments) == 1:
        array = _walk(arguments[0], rows)
        return array.is_null() if name == "isnull" else array.is_valid()
    raise Unsupported(_sql(node))


def _extreme(node: Any, rows: _Rows) -> Any:
    op = "<" if isinstance(node, exp.Least) else ">"
    return extreme(op, [_walk(n, rows) for n in [node.this, *node.expressions]])


_NODES: dict[type, Callable[[Any, _Rows], Any]] = {
    exp.Abs: lambda n, r: absolute(_walk(n.this, r)),
    exp.And: _both,
    exp.Anonymous: _anonymous,
    exp.Between: _between,
    exp.Boolean: lambda n, r: r.constant(n.this, pa.bool_()),
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Ceil: _whole,
    exp.Coalesce: _coalesce,
    exp.Column: _column,
    exp.Floor: _whole,
    exp.Greatest: _extreme,
    exp.If: _if,
    exp.In: _in,
    exp.Interval: _interval,
    exp.Is: _is,
    exp.IsNan: lambda n, r: pc.fill_null(pc.is_nan(cast(_walk(n.this, r), pa.float64())), False),
    exp.Least: _extreme,
    exp.Length: lambda n, r: pc.utf8_length(_text(n.this, r)),
    exp.Like: _like,
    exp.Literal: _literal,
    exp.Lower: _letters(str.lower, pc.utf8_lower),
    exp.Neg: _neg,
    exp.Not: lambda n, r: pc.invert(_condition(n.this, r)),
    exp.Null: lambda n, r: pa.nulls(len(r)),
    exp.Nullif: _nullif,
    exp.NullSafeEQ: lambda n, r: null_safe_equal(_walk(n.this, r), _walk(n.expression, r)),
    exp.NullSafeNEQ: lambda n, r: pc.invert(null_safe_equal(_walk(n.this, r), _walk(n.expression, r))),
    exp.Or: _either,
    exp.Paren: lambda n, r: _walk(n.this, r),
    exp.Round: _round,
    exp.SafeDivide: lambda n, r: arithmetic(
        "/", _walk(n.this, r), _walk(n.expression, r), (_digits(n.this), _digits(n.expression)), strict=False
    ),
    exp.Sqrt: lambda n, r: pc.sqrt(cast(_walk(n.this, r), pa.float64())),
    exp.TryCast: _cast,
    exp.UnixMicros: _unix_micros,
    exp.Upper: _letters(str.upper, pc.utf8_upper),
}
