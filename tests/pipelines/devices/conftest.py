import pytest


@pytest.fixture(autouse=True)
def _no_thread_limit(monkeypatch):
    """Removes limits of the environment in which the tests run."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
