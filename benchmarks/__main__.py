"""`python -m benchmarks [QUESTION…] [--full] [--peers DIR]`: each comparison on two lines, all of them as JSON."""

from __future__ import annotations

import argparse
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import growth
from benchmarks.run import Effort, write_results
from core.cli import run_command
from core.errors import EXIT_OK

# One module each, with a function `comparisons`.
COMPARED = ("patchtst", "swinmae", "scalogram", "data", "convergence")
QUESTIONS = (*COMPARED, "growth")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Speed beside named peers, in paired rounds.")
    parser.add_argument("question", nargs="*", choices=[*QUESTIONS, []], help=f"by default all: {', '.join(QUESTIONS)}")
    parser.add_argument("--full", action="store_true", help="also what takes minutes, in nine rounds instead of five")
    parser.add_argument("--rounds", type=int, help="paired rounds of each comparison")
    parser.add_argument("--bf16", action="store_true", help="also in bfloat16; a CPU without it emulates it slowly")
    parser.add_argument("--peers", type=Path, help="a folder with clones of PatchTST, Swin-MAE and SimMIM")
    parser.add_argument("--data", type=Path, help="a folder with the real data sets ETTh1 and SKAB, for convergence")
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results as it is")

    def command(arguments: argparse.Namespace) -> int:
        rounds = arguments.rounds or (9 if arguments.full else 5)
        effort = Effort(
            rounds=rounds, full=arguments.full, bf16=arguments.bf16, peers=arguments.peers, data=arguments.data
        )
        for question in arguments.question or QUESTIONS:
            sys.stdout.write(f"{question}\n")
            if question in COMPARED:
                measured = importlib.import_module(f"benchmarks.{question}").comparisons(effort)
                write = partial(write_results, question)
            else:
                measured, write = growth.results(effort), growth.write
            found: list[Any] = []
            try:
                for result in measured:
                    sys.stdout.write(f"{result}\n")
                    sys.stdout.flush()
                    found.append(result)
            finally:  # what was measured stays, also where a peer does not start
                if found and not arguments.no_write:
                    write(found)
        return EXIT_OK

    return run_command(command, parser, None)


if __name__ == "__main__":
    sys.exit(main())
