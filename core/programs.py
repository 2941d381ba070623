"""Runs other programs, and Python in a separate process, each with a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import LandfallError


def answer_of(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The output of a program, and its exit code. Raises LandfallError if it does not start or takes longer."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise LandfallError(f"{Path(command[0]).name} gave no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise LandfallError(f"{Path(command[0]).name} does not start: {error}") from error


def ask_python(program: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a Python program with the same modules as this process, and returns its last line of output, parsed as JSON.

    environment: additional variables. Raises LandfallError if it fails or takes longer.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    answer = answer_of([sys.executable, "-c", program], timeout_s, variables)
    if answer.returncode:
        said = (answer.stderr.strip() or "nothing").splitlines()[-1]
        raise LandfallError(f"it failed (exit code {answer.returncode}): {said}")
    try:
        return json.loads(answer.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise LandfallError("its answer is not JSON") from error
