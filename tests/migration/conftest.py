"""Fixtures shared by the tests of the migration."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell of IPython replaces `__main__`; it is restored for later tests."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
