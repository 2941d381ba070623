"""`python -m benchmarks [--rounds N]`: each comparison on a line."""

from __future__ import annotations

import argparse
import sys

import torch

from benchmarks.peers import BENCHMARKS
from core.cli import run_command
from core.devices.host import usable_cores
from core.errors import EXIT_OK


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Speed against named peers, on the CPU.")
    parser.add_argument("--rounds", type=int, default=5, help="paired rounds of each comparison (default: 5)")

    def command(arguments: argparse.Namespace) -> int:
        torch.manual_seed(0)
        torch.set_num_threads(usable_cores())
        sys.stdout.write(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.rounds} rounds\n")
        for benchmark in BENCHMARKS:
            sys.stdout.write(f"{benchmark(arguments.rounds)}\n")
            sys.stdout.flush()
        return EXIT_OK

    return run_command(command, parser, None)


if __name__ == "__main__":
    sys.exit(main())
