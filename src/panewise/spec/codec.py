"""TOML, there and back: `loads` and `dumps`, and a table whose keys are read by name and checked.

tomllib only reads, and what a job file needs of a writer is small, so the writer is our own.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from panewise.errors import JobError, did_you_mean

__all__ = ["Table", "dumps", "loads"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KINDS = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}


def loads(text: str) -> dict[str, Any]:
    r"""Read TOML.

    >>> loads("[plan]\nby = ['router']")
    {'plan': {'by': ['router']}}
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise JobError(f"The job is not valid TOML: {e}. Strings need quotes; keys with spaces do too.") from None


def dumps(mapping: Mapping[str, Any]) -> str:
    """Write TOML: text, numbers, booleans, lists and tables; `loads(dumps(x)) == x`.

    >>> print(dumps({"plan": {"scheme": "delta_frames", "amounts": {"x_m + 52.5": 4.2}}}), end="")
    [plan]
    scheme = "delta_frames"
    <BLANKLINE>
    [plan.amounts]
    "x_m + 52.5" = 4.2
    """
    return "\n".join(_section((), mapping))


def _section(path: tuple[str, ...], mapping: Mapping[str, Any]) -> list[str]:
    """The text of a table and of the tables below it, one string each."""
    plain = {key: value for key, value in mapping.items() if not isinstance(value, Mapping)}
    below = {key: value for key, value in mapping.items() if isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in plain.items()]
    if path and (plain or not below):
        lines.insert(0, f"[{'.'.join(_key(p) for p in path)}]\n")
    own = ["".join(lines)] if lines else []
    return own + [text for key, value in below.items() for text in _section((*path, key), value)]


def _text(text: str) -> str:
    # JSON leaves DEL as it is, TOML wants it escaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(_value(v) for v in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())}}}"
        case _:
            raise JobError(f"{value!r} can't be written to a job file. Use text, numbers, booleans, lists and tables.")


class Table:
    """One table of a job, read key by key; `only` refuses keys that it does not have."""

    def __init__(self, name: str, content: object) -> None:
        if not isinstance(content, dict):
            raise JobError(f"`{name}` ({content!r}) must be a table. Write [{name}] and its options below it.")
        self.name = name
        self.content: dict[str, Any] = content

    def _is(self, key: str, value: object, kind: type) -> bool:
        accepted = (int, float) if kind is float else kind
        if isinstance(value, accepted) and not isinstance(value, bool):
            return True
        raise JobError(f"`{key}` in [{self.name}] ({value!r}) must be {_KINDS[kind]}. Write it as {_KINDS[kind]}.")

    def optional(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key, or the default."""
        if key not in self.content:
            return default
        value = self.content[key]
        self._is(key, value, kind)
        return value

    def flag(self, key: str) -> bool:
        """Whether a key is there and true."""
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise JobError(f"`{key}` in [{self.name}] ({value!r}) must be true or false. Write it without quotes.")
        return value

    def text(self, key: str) -> str:
        """The value of a key as text: true, false and numbers as they are written."""
        value = self.content[key]
        if isinstance(value, (bool, int, float)):
            return _value(value)
        self._is(key, value, str)
        return str(value)

    def required(self, key: str, kind: type, example: str) -> Any:
        """The value of a key that must be there."""
        if key not in self.content:
            raise JobError(f"`{key}` is missing in [{self.name}]. Add it, such as {example}.")
        return self.optional(key, kind)

    def word(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of a few words; it must be there if there is no default."""
        word: str = (
            default if default and key not in self.content else self.required(key, str, f'{key} = "{allowed[0]}"')
        )
        if word not in allowed:
            words = ", ".join(f'"{a}"' for a in allowed)
            raise JobError(f"`{key}` in [{self.name}] ({word!r}) must be one of {words}. Choose one of these.")
        return word

    def list(self, key: str, kind: type) -> tuple[Any, ...]:
        """A list of one kind of values; one value alone is a list of one."""
        value = self.content.get(key, [])
        values = value if isinstance(value, list) else [value]
        for v in values:
            self._is(key, v, kind)
        return tuple(values)

    def only(self, what: str, known: Iterable[str]) -> None:
        """Refuse keys that are not known to `what`."""
        names = list(known)
        for key in self.content:
            if key not in names:
                raise JobError(f"`{key}` in [{self.name}] is not an option of {what}. {did_you_mean(key, names)}")

    def made(self, what: str, makers: Mapping[str, Callable[..., Any]], stream: str) -> Any:
        """What the function that `kind` names makes of the other keys; `stream` is one that needs another stream."""
        kind = self.required("kind", str, f'kind = "{next(iter(makers))}"')
        if kind == stream:
            raise JobError(
                f"`kind` in [{self.name}] ({kind!r}) is another stream, which a job file can't name. "
                "Choose another kind, or run the plan from Python."
            )
        if kind not in makers:
            raise JobError(f"`kind` in [{self.name}] ({kind!r}) is no {what}. {did_you_mean(kind, makers)}")
        options = {key: value for key, value in self.content.items() if key != "kind"}
        parameters = inspect.signature(makers[kind]).parameters
        self.only(kind, ["kind", *parameters])
        several: tuple[Any, ...] = ()
        for name, parameter in parameters.items():
            if parameter.default is parameter.empty and name not in options:
                raise JobError(f"`{name}` is missing in [{self.name}]: {kind} can't do without it. Add `{name}`.")
            if parameter.kind is parameter.VAR_POSITIONAL:
                several = self.list(name, str)
                del options[name]
        return makers[kind](*several, **options)
