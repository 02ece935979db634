"""Classes that users bring, by their names: "module:Class"."""

from __future__ import annotations

from importlib import import_module

from panewise.errors import PanewiseError

__all__ = ["class_at", "class_path"]


def class_at(told: str, path: object, error: type[PanewiseError]) -> object:
    """What a name stands for; `told` says where it was given.

    >>> class_at("custom", "collections:Counter", PanewiseError)
    <class 'collections.Counter'>
    """
    module, colon, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and colon and name):
        raise error(f'{told} ({path!r}) must name a class. Write "module:Class".')
    if module.startswith("."):
        raise error(
            f"{told} ({path!r}) starts with a dot, but is in no package. "
            'Write the module in full, "package.module:Class".'
        )
    try:
        found: object = import_module(module)
    except ImportError as e:
        raise error(f"{told} ({path!r}) can't be imported: {e}. Put the module on the path.") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise error(f"{told} ({path!r}): {module} has no {name}. Define it there, or name another.")
        found = getattr(found, part)
    return found


def class_path(kind: type) -> str:
    """The name of a class.

    >>> from collections import Counter
    >>> class_path(Counter)
    'collections:Counter'
    """
    return f"{kind.__module__}:{kind.__qualname__}"
