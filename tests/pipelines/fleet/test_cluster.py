"""How many workers a fleet starts, and the GPU of each. The GPUs are absent; the cluster is real."""

from __future__ import annotations

import os
import signal
import socket
import ssl

import pytest

from core.host import memory_mb, usable_cores
from tests.pipelines.fleet.starting import start
from tests.support.waiting import PATIENCE_S

dask = pytest.importorskip("dask", reason="the extra fleet is not installed")
distributed = pytest.importorskip("distributed", reason="the extra fleet is not installed")

from pipelines.fleet.cluster import _connected, _outcome_of, gpus_here, workers_for  # noqa: E402
from pipelines.fleet.jobs import Job, _choose_gpu, read_outcome  # noqa: E402
from pipelines.fleet.machines import Machine  # noqa: E402


def test_one_worker_for_each_gpu_and_on_a_cpu_as_many_as_memory_has_room_for():
    assert workers_for(10, ("0", "1"), None) == 2
    assert workers_for(1, ("0", "1"), None) == 1
    assert workers_for(10, (), None) == 1  # measures the first job
    assert workers_for(10**6, (), 1.0) == usable_cores()
    assert workers_for(10, (), 10 * memory_mb().free_mb) == 1


@pytest.mark.parametrize(("visible", "gpus"), [("2,5", ("2", "5")), ("", ()), ("-1", ())])
def test_only_visible_gpus_are_used(visible, gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_here() == gpus


@pytest.mark.slow
def test_a_worker_uses_the_gpu_of_its_number():
    options = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.submit(_choose_gpu, ("3", "5")).result()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.slow
def test_only_connections_with_the_certificate_of_the_fleet_are_accepted():
    with _connected(None, 1) as (_, cluster):
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        assert _answer_to_a_stranger(int(cluster.scheduler_address.rpartition(":")[2])) == b""


def _answer_to_a_stranger(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain) as connection,
        ):
            return connection.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.nightly
def test_a_signal_ends_the_command_and_its_workers(plant):
    import psutil

    process = start(plant, "score", "--machine", "pump", "--machine", "fan", "--workers", "1")
    children = []
    while process.poll() is None and not (plant / "machines").exists():
        children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert "landfall fleet: stopped: received SIGTERM" in err
    assert children
    assert psutil.wait_procs(children, timeout=PATIENCE_S)[1] == []


@pytest.mark.slow
def test_a_job_that_kills_its_workers_is_a_failure_of_its_machine(workspace):
    machine = Machine(id="a", stream="patchtst", data=".")
    job = Job(machine, "score", workspace, "run")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        future = client.submit(signal.raise_signal, signal.SIGKILL)
        distributed.wait([future])
        outcome = _outcome_of(future, job)
    assert (outcome.ending, outcome.exit_code) == ("failed", 137)
    assert "1 worker died" in outcome.reason
    assert read_outcome(workspace / "machines/a", "score").reason == outcome.reason
