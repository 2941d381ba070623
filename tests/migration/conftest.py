"""What tests of the migration share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell of IPython takes the place of `__main__`, and would keep it for all tests after."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
