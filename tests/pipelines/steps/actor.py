"""The process of a step in the tests: `python -m tests.pipelines.steps.actor` executes its arguments in order."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--say", default="")
parser.add_argument("--log", action="append", default=[], help="a line on stderr, as it stands")
parser.add_argument("--event", action="append", default=[], help="as a notebook reports it")
parser.add_argument("--say-last", default="")
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--touch", type=Path, help="a file that says that it is here and would heed a signal")
parser.add_argument("--until", type=Path, help="works until this file exists")
parser.add_argument("--saves", action="store_true", help="stops with the exit code of what can be resumed")
parser.add_argument("--write", type=Path)
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--repo-root", type=Path)
words = parser.parse_args()

began = time.time()
if words.say:
    sys.stderr.write(f"actor: {words.say}\n")
for line in words.log:
    sys.stderr.write(line + "\n")
for event in words.event:
    sys.stdout.write(event + "\n")
    sys.stdout.flush()
if words.say_last:
    sys.stderr.write(f"actor: {words.say_last}\n")
try:
    if words.touch:
        (words.repo_root / words.touch).touch()
    time.sleep(words.sleep)
    deadline = time.monotonic() + 60
    while words.until and not (words.repo_root / words.until).exists():
        if time.monotonic() > deadline:
            sys.exit(f"actor: {words.until} is missing")
        time.sleep(0.01)
except KeyboardInterrupt:
    sys.stderr.write("actor: interrupted\n")
    sys.exit(75 if words.saves else 130)
if words.write:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    path = words.repo_root / words.write
    path.write_text(json.dumps({"began": began, "ended": time.time(), "cores": cores}), encoding="utf-8")
sys.exit(words.exit)
