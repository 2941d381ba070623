"""`python -m benchmarks [QUESTION…] [--full] [--peers DIR]`: prints two lines per result. The full form
runs all benchmarks and writes its results to `benchmarks/results/`; the quick form runs the most important ones in a
few minutes, and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from benchmarks.run import Effort, write_results
from core.cli import run_command
from core.errors import EXIT_OK

# Modules of this package with a function `comparisons`.
QUICK = ("patchtst", "swinmae", "scalogram", "data")
QUESTIONS = (*QUICK, "busy")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Speed compared with named implementations, in paired rounds."
    )
    parser.add_argument("question", nargs="*", choices=[*QUESTIONS, []], help=f"one or more of {', '.join(QUESTIONS)}")
    parser.add_argument(
        "--full", action="store_true", help="all benchmarks, with nine rounds instead of five; writes the results"
    )
    parser.add_argument("--rounds", type=int, help="paired rounds of each comparison")
    parser.add_argument("--bf16", action="store_true", help="also in bfloat16; a CPU without it emulates it slowly")
    parser.add_argument("--peers", type=Path, help="a folder with clones of the peers' repositories, by their names")

    def command(arguments: argparse.Namespace) -> int:
        rounds = arguments.rounds or (9 if arguments.full else 5)
        effort = Effort(rounds=rounds, full=arguments.full, bf16=arguments.bf16, peers=arguments.peers)
        for question in arguments.question or (QUESTIONS if arguments.full else QUICK):
            sys.stdout.write(f"{question}\n")
            found: list[Any] = []
            try:
                for result in importlib.import_module(f"benchmarks.{question}").comparisons(effort):
                    sys.stdout.write(f"{result}\n")
                    sys.stdout.flush()
                    found.append(result)
            finally:  # keeps the results even if a peer does not start
                if found and arguments.full:
                    write_results(question, found)
        return EXIT_OK

    return run_command(command, parser, None)


if __name__ == "__main__":
    sys.exit(main())
