"""Reports the hardware, what a run would use, and why: `landfall devices [--json] [--verbose] [--doctor]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.cli import run_command
from core.errors import EXIT_FAILURE, EXIT_OK, LandfallError

if TYPE_CHECKING:
    from core.devices.manager import DeviceManager


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall devices", description="Shows the hardware, what a run would use, and why."
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--verbose", action="store_true", help="add metadata, other frameworks' devices, cost per run")
    parser.add_argument("--doctor", action="store_true", help="check devices and the disk; exit 1 if one fails")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the report instead")
    return run_command(_report, parser, argv)


def _report(arguments: argparse.Namespace) -> int:
    manager = _manager()
    # All of these import torch, which --help does not need.
    from core.workspace import json_text, schema_text
    from pipelines.devices.document import DeviceReport
    from pipelines.devices.report import Facts, device_report
    from pipelines.devices.text import as_text

    if arguments.schema:
        sys.stdout.write(schema_text(DeviceReport))
        return EXIT_OK
    checks = None
    if arguments.doctor:
        from pipelines.devices.doctor import run_checks

        checks = run_checks(manager)
    report = device_report(manager, Facts.of_this_machine(verbose=arguments.verbose), checks=checks)
    if arguments.json:
        sys.stdout.write(json_text(report.model_dump(mode="json")))
    else:
        sys.stdout.write(as_text(report, verbose=arguments.verbose) + "\n")
    return EXIT_FAILURE if any(check.status == "FAIL" for check in checks or ()) else EXIT_OK


def _manager() -> DeviceManager:
    """Detectors handle driver errors, but a PyTorch with missing libraries cannot be imported."""
    try:
        from core.devices.manager import DeviceManager

        return DeviceManager()
    except (ImportError, OSError) as error:
        raise LandfallError(f"PyTorch cannot be imported: {error}", hint="reinstall it with make setup") from error


if __name__ == "__main__":
    sys.exit(main())
