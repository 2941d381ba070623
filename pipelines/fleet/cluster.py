"""Jobs on the workers of Dask distributed: on this machine, or on those of a scheduler that is already running.

Dask schedules the jobs, restarts workers that die, and gives their jobs to other workers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager

import dask
from distributed import Client, KilledWorker, LocalCluster, as_completed

from core.devices import nvidia
from core.errors import EXIT_KILLED, LandfallError, UsageError
from core.host import memory_mb, usable_cores
from core.numbers import counted
from pipelines.fleet.jobs import Job, Outcome, run_job
from pipelines.fleet.machines import workspace_of

log = logging.getLogger(__name__)

# Share of the free memory that workers may use.
_MEMORY_SHARE = 0.9
_SETTINGS = {
    "distributed.worker.daemon": False,  # jobs start processes, which daemons cannot
    "distributed.deploy.lost-worker-timeout": "600s",  # a restarted worker imports again, which may take minutes
    "distributed.worker.profile.enabled": False,  # reads the stack of a job 100 times per second
    "distributed.scheduler.http.routes": [],  # no facts about jobs over HTTP, which has no TLS
    "distributed.worker.http.routes": [],
}


def gpus_here() -> tuple[str, ...]:
    """The GPUs of this machine, as values for CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name for name in visible.split(",") if name not in ("", "-1"))
    return tuple(str(index) for index in range(len(nvidia.query())))


def workers_for(num_jobs: int, gpus: Sequence[str], peak_mb: float | None) -> int:
    """Number of workers: one for each GPU; on a CPU one for each core, limited by the free memory.

    peak_mb: peak memory of a worker with such jobs; if it is None, the result is 1, so that the first job is measured
    alone.
    """
    if gpus:
        return min(num_jobs, len(gpus))
    if peak_mb is None:
        return 1
    return max(1, min(num_jobs, usable_cores(), int(_MEMORY_SHARE * memory_mb().free_mb / max(peak_mb, 1.0))))


def run_jobs(
    jobs: Sequence[Job], *, scheduler: str | None, workers: int | None, peak_mb: float | None
) -> Iterator[Outcome]:
    """The outcome of each job, in the order in which they end.

    scheduler: address of a running scheduler, such as `tcp://host:8786`; None starts workers on this machine. workers:
    number of workers on this machine; None: that of `workers_for`. peak_mb: as for `workers_for`.
    Raises UsageError if the scheduler does not respond, LandfallError if the connection to it is lost.
    """
    gpus = jobs[0].gpus
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it reports every connection
    with _connected(scheduler, workers or workers_for(len(jobs), gpus, peak_mb)) as (client, cluster):
        by_key = {f"{job.command}-{job.machine.id}-{job.run_id}": job for job in jobs}
        futures = [client.submit(run_job, job, key=key, pure=False) for key, job in by_key.items()]
        grows = cluster is not None and not (workers or gpus or peak_mb)
        for future in as_completed(futures):
            outcome = _outcome_of(future, by_key[future.key])
            if grows and outcome.ending == "completed":
                grows = False
                cluster.scale(workers_for(len(jobs), gpus, outcome.peak_mb))
            future.release()
            yield outcome


def _outcome_of(future: object, job: Job) -> Outcome:
    try:
        return future.result()
    except KilledWorker as error:
        deaths = counted(error.allowed_failures + 1, "worker")
        reason = f"{deaths} died in this job, the last on {error.last_worker.address}: too little memory?"
        code = EXIT_KILLED
    except (CancelledError, OSError) as error:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its attempts to connect again
        raise LandfallError("the scheduler was lost", hint="run the command again: it resumes") from error
    except Exception as error:  # of a worker without Landfall, for example
        reason, code = f"{type(error).__name__}: {error}", 1
    outcome = Outcome(job.machine.id, job.command, "failed", reason, code)
    outcome.write(workspace_of(job.machine, job.root))
    return outcome


@contextmanager
def _connected(scheduler: str | None, workers: int) -> Iterator[tuple[Client, LocalCluster | None]]:
    if scheduler is not None:
        try:
            with Client(scheduler, timeout="10s") as client:
                yield client, None
        except (OSError, ValueError) as error:
            raise UsageError(f"no scheduler at {scheduler}: {error}", hint="start one: dask scheduler") from error
        return
    # Dask would stop workers by their total memory (memory_limit), and any user of this machine could send them code
    # without TLS, here with a temporary certificate.
    with dask.config.set(_SETTINGS):
        try:
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0", security=True
            )
        except RuntimeError as error:
            raise LandfallError(f"a worker died at its start: {error}", hint="run the command again") from error
        with cluster, Client(cluster) as client:
            yield client, cluster
            logging.getLogger("distributed").setLevel(logging.ERROR)  # it warns of each worker that ends slowly
