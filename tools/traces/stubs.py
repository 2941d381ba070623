"""Stubs for packages outside the standard library: every import works, every operation is allowed, and each call is
logged. An effect is the position of a cell, a kind (one of `compare.KINDS`) and a text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_REAL = frozenset({"IPython", "landfall_runtime", "traitlets", "ipykernel", "pygments", "prompt_toolkit"})
_MAX_DEPTH = 4
_MAX_EFFECTS = 500  # of one kind in one cell
MAX_TEXT = 20_000  # characters of an effect
Effect = tuple[int, str, str]  # the position of the cell, the kind, the text


class Log:
    """The effects of one run; `cell` is the position of the running cell."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.cell = -1
        self.paused = False
        self._counts: Counter[tuple[int, str]] = Counter()

    def add(self, kind: str, text: str) -> None:
        self._counts[self.cell, kind] += not self.paused
        if not self.paused and self._counts[self.cell, kind] <= _MAX_EFFECTS:
            self.effects.append((self.cell, kind, text[:MAX_TEXT]))

    def quietly(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, without a log of its effects."""

        def quiet(*arguments: Any, **options: Any) -> Any:
            was, self.paused = self.paused, True
            try:
                return call(*arguments, **options)
            finally:
                self.paused = was

        return quiet


def described(value: Any, depth: int = 0) -> str:
    """An argument as text for the log, without memory addresses."""
    match value:
        case Stub():
            return str(value)
        case str() | bytes() | int() | float() | bool() | None:
            return repr(value)
        case os.PathLike():
            return repr(os.fspath(value))
        case list() | tuple() | set() if depth < _MAX_DEPTH:
            return f"[{', '.join(described(part, depth + 1) for part in value)}]"
        case dict() if depth < _MAX_DEPTH:
            return (
                "{" + ", ".join(f"{described(k, depth + 1)}: {described(v, depth + 1)}" for k, v in value.items()) + "}"
            )
    return type(value).__name__


class _Base:
    """Base of classes that inherit from a stub."""

    def __init__(self, *arguments: Any, **options: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(self._log_of_stubs, f"{type(self).__name__}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return Stub(self._log_of_stubs, f"{type(self).__name__}()")

    _log_of_stubs: Log


class Stub:
    """An object of a missing package: allows every operation, and logs calls."""

    def __init__(self, log: Log, name: str):
        self.__dict__.update(_log=log, _name=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(self._log, f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        texts = [described(value) for value in arguments] + [f"{key}={described(v)}" for key, v in options.items()]
        self._log.add("call", f"{self._name}({', '.join(texts)})")
        return Stub(self._log, f"{self._name}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("Base", (_Base,), {"_log_of_stubs": self._log}),)

    def __getitem__(self, key: Any) -> Any:
        return Stub(self._log, f"{self._name}[{described(key)}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    __delitem__ = __delattr__ = lambda self, key: None

    def __iter__(self) -> Iterator[Any]:
        return iter((Stub(self._log, f"{self._name}[0]"), Stub(self._log, f"{self._name}[1]")))

    def keys(self) -> list[str]:
        """One key, so that `**stub` works."""
        return ["key"]

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: Any) -> bool:
        return False

    def __str__(self) -> str:
        return f"<{self._name}>"

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return str(self)

    def __fspath__(self) -> str:
        return "stub"

    def _combined(self, *others: Any) -> Any:
        return Stub(self._log, f"{self._name}~")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _combined
    __floordiv__ = __mod__ = __pow__ = __rpow__ = __matmul__ = __neg__ = __abs__ = __and__ = __or__ = _combined
    __invert__ = __xor__ = __rshift__ = __lshift__ = __rfloordiv__ = __rmod__ = __round__ = _combined
    __len__ = __int__ = __index__ = __hash__ = lambda self: 1
    __float__ = lambda self: 1.0  # noqa: E731 one line a protocol
    __bool__ = lambda self: True  # noqa: E731
    __contains__ = lambda self, other: False  # noqa: E731
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: FalseStub(self._log, f"{self._name}~")  # type: ignore[assignment]
    __ne__ = _combined  # type: ignore[assignment]


class FalseStub(Stub):
    """The result of a comparison: false in a condition, but also an array, as in `(column == 2).astype(int)`."""

    __bool__ = lambda self: False  # noqa: E731
    __hash__ = Stub.__hash__


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides a stub for each package that is neither in the standard library nor a file of the notebook."""

    def __init__(self, log: Log):
        self.log = log

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in _REAL or top.startswith("_") or name.startswith("google.colab"):
            return None
        # A folder without a module is a clone that a recorder did not make.
        own = (Path(folder or ".", top) for folder in sys.path[:3])
        if any(path.with_suffix(".py").exists() or any(path.glob("*.py")) for path in own):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        log, name = self.log, spec.name

        class Module(types.ModuleType):
            def __getattr__(self, part: str) -> Any:
                if part.startswith("__"):
                    raise AttributeError(part)
                return Stub(log, f"{name}.{part}")

            def __call__(self, *arguments: Any, **options: Any) -> Any:
                return Stub(log, name)(*arguments, **options)

        return Module(name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(__all__=[], __version__="1.0.0", __file__=f"/usr/lib/{module.__name__}/__init__.py")
