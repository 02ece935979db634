"""What is compiled and kept on disk follows its source, and the source of what it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CALLER = """
from panewise.kernel.compiled import compiled
from probe import steps
from probe.parts import part

@compiled
def total(x):
    return own(x) + steps.SIZE

@compiled
def own(x):
    return part(x)
"""


def _total(folder: Path, plus: int, size: int) -> tuple[int, int]:
    """What a caller gives, and how many of its compiled versions came from the disk."""
    (folder / "probe" / "parts.py").write_text(
        f"from panewise.kernel.compiled import compiled\n@compiled\ndef part(x):\n    return x + {plus}\n"
    )
    (folder / "probe" / "steps.py").write_text(f"SIZE = {size}\n")
    program = "from probe.calls import total; print(total(1), sum(total.stats.cache_hits.values()))"
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    value, hits = done.stdout.split()
    return int(value), int(hits)


def test_compiled_functions_are_renewed_with_what_they_call(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "__init__.py").touch()
    (tmp_path / "probe" / "calls.py").write_text(_CALLER)
    assert _total(tmp_path, 10, 100) == (111, 0)
    assert _total(tmp_path, 10, 100) == (111, 1)
    assert _total(tmp_path, 20, 100) == (121, 0)  # a function of a function that it calls
    assert _total(tmp_path, 20, 200) == (221, 0)  # a constant of another module
