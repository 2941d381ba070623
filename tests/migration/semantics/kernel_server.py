"""Starts kernels quickly: imports everything once, then forks one real ipykernel for each line it reads.

A line is JSON: `connection` (a file), `folder`, `environment` (all of it), `imports` (modules that the machine has
loaded) and `options` for the kernel's command line. The answer is the kernel's process id; kernels end with this one.
"""

import ctypes
import importlib
import json
import os
import signal
import sys

PRELOADED = (
    "ipykernel.kernelapp", "ipykernel.zmqshell", "IPython.core.completer", "IPython.core.magics.script",
    "matplotlib_inline.backend_inline", "pexpect", "comm",
)  # fmt: skip
PR_SET_PDEATHSIG = 1


def run_kernel(order: dict) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = ["", *order["environment"].get("PYTHONPATH", "").split(os.pathsep)]
    for module in order["imports"]:
        importlib.import_module(module)
    arguments = ["-f", order["connection"], "--HistoryManager.enabled=False", "--no-secure", *order["options"]]
    sys.modules["ipykernel.kernelapp"].IPKernelApp.launch_instance(arguments)


if __name__ == "__main__":
    del sys.path[0]
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run_kernel(json.loads(line))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
