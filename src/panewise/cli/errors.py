"""What went wrong, in one sentence."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from panewise.errors import PanewiseError

__all__ = ["EXPECTED", "sentence"]

EXPECTED = (PanewiseError, PySparkException, Py4JError, OSError)
"""What can go wrong without a mistake in panewise."""

_OURS = re.compile(r"^panewise\.errors\.\w+Error: (.+)$", re.MULTILINE)
_THEIRS = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Warning|Exit): .*|\w[\w.]*Error)$", re.MULTILINE)
_JAVAS = re.compile(r"^: ((?:\w+\.)+\w+: .*)$", re.MULTILINE)
_STREAM = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")


def sentence(error: BaseException) -> tuple[str, bool]:
    """One line for a person, and whether it says all: if not, Spark's log may know more.

    >>> sentence(PanewiseError("`slide` is too long. Use a shorter one."))
    ('`slide` is too long. Use a shorter one.', True)
    """
    if isinstance(error, PanewiseError):
        return str(error), True
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}.", True
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return ours[-1].strip(), True
    if isinstance(error, PySparkException):
        condition = error.getCondition()
        if condition == "JAVA_GATEWAY_EXITED":
            return "Spark did not start. It needs Java 17 or newer (JAVA_HOME), and a master that it knows.", False
        theirs = _THEIRS.findall(text)
        if condition == "STREAM_FAILED":
            told = [*theirs, *_JAVAS.findall(text)]
            return f"The stream has failed: {_first_line(told[-1] if told else _STREAM.sub('', text))}", False
        if condition == "PYTHON_EXCEPTION" and theirs:
            return f"A Python worker failed: {theirs[-1]}", False
    return f"Spark says: {_first_line(text)}", False


def _first_line(text: str) -> str:
    """The first line that says something, without Spark's codes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("An error occurred while calling")] or ["nothing"]
    return _STATE.sub("", said[0].removeprefix(": "))
