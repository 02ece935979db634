"""The public face: every public name is announced, in order. (ruff sees to the modules below: F822, RUF022.)"""

from __future__ import annotations

from types import ModuleType

import panewise


def ruffs_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order of RUF022."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_all_is_sorted() -> None:
    assert list(panewise.__all__) == sorted(panewise.__all__, key=ruffs_order)


def test_all_has_every_public_name() -> None:
    public = {
        name
        for name, value in vars(panewise).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert public <= set(panewise.__all__)


def test_every_name_in_all_is_there() -> None:
    assert [name for name in panewise.__all__ if not hasattr(panewise, name)] == []
