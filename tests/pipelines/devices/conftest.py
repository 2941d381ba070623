import pytest


@pytest.fixture(autouse=True)
def _no_thread_limit(monkeypatch):
    """The tests themselves may run under one."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
