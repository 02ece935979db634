"""The public face: every public name is announced, in order. (ruff sees to the modules below: F822, RUF022.)"""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import panewise


def ruffs_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order of RUF022."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_all_is_sorted() -> None:
    assert list(panewise.__all__) == sorted(panewise.__all__, key=ruffs_order)


def test_all_has_every_public_name() -> None:
    """What type checkers are told is what is imported once it is asked for."""
    tree = ast.parse(Path(panewise.__file__).read_text(encoding="utf-8"))
    told = {node.module: tuple(each.name for each in node.names) for node in _imports(tree)}
    assert told == panewise._HOMES
    assert sorted(itertools.chain(*told.values())) == sorted(panewise.__all__) == sorted(dir(panewise))


def _imports(tree: ast.Module) -> list[ast.ImportFrom]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [node for node in found if (node.module or "").startswith("panewise.")]


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'panewise' has no attribute 'frames'"):
        _ = panewise.frames


def test_a_plan_needs_little() -> None:
    """Neither Spark nor compiled kernels; a worker that is asked for the state of a stream no kernels."""
    check = "import sys; import {}; print([name for name in {!r} if name in sys.modules])"
    for module, heavy in (("panewise as pw; pw.slack", ["pyspark", "numba"]), ("panewise.spark.processor", ["numba"])):
        done = subprocess.run(
            [sys.executable, "-c", check.format(module, heavy)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"


def test_every_name_in_all_is_there() -> None:
    assert [name for name in panewise.__all__ if not hasattr(panewise, name)] == []
