"""The values of a kernel's variables as comparable text."""

import json
import types
from pathlib import PurePath

_HIDDEN = {"In", "Out", "exit", "quit", "open", "get_ipython"}
_COLAB = ("google.colab", "landfall_runtime")


def variables(namespace: dict) -> str:
    """JSON of names and values; for values that are not plain data, only the type."""
    return json.dumps(
        {
            name: _described(value)
            for name, value in namespace.items()
            if not name.startswith("_") and name not in _HIDDEN
        }
    )


def _described(value: object) -> str:
    if isinstance(value, str):
        return f"'{value}'"  # as it is: an escaped character before a folder would look like a part of its name
    if isinstance(value, bytes):
        return f"b{_described(value.decode('latin-1'))}"
    if isinstance(value, (int, float, complex, bool, type(None))):
        return repr(value)
    if isinstance(value, PurePath):
        return f"Path({_described(str(value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_described(key)}: {_described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_described(item) for item in value]
        return f"{type(value).__name__}({', '.join(items if isinstance(value, (list, tuple)) else sorted(items))})"
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
    if str(home).startswith(_COLAB):
        return "<colab>"
    if isinstance(value, types.ModuleType):
        return "<module>"
    return f"<{type(value).__name__}>"
