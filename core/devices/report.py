"""What hardware was found and what a run would use: `landfall devices [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from core.cli import run_command
from core.errors import EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="devices", description="Shows the hardware and what a run would use.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return run_command(_report, parser, argv)


def _report(arguments: argparse.Namespace) -> int:
    from core.devices.manager import DeviceManager

    manager = DeviceManager()
    plan = manager.plan()
    if arguments.json:
        report = {"plan": plan.to_json(), "devices": [found.to_json() for found in manager.capabilities]}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return EXIT_OK
    for found in manager.capabilities:
        mark = "usable" if found.usable else "NOT usable"
        memory = f"{found.memory_free_mb / 1024:.1f} of {found.memory_total_mb / 1024:.1f} GiB free"
        sys.stdout.write(f"{found.kind:<5} {found.count} × {found.name}, {memory}; {mark}: {found.reason}\n")
    sys.stdout.write(f"→ device     {plan.kind}: {plan.device_reason}\n")
    sys.stdout.write(f"→ precision  {plan.precision}: {plan.precision_reason}\n")
    sys.stdout.write(f"→ threads    {plan.threads}\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
