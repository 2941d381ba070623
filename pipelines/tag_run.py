"""`landfall tag RUN`: sets tags and a note of a run, which `landfall runs` and the dashboard show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from core.cli import print_json, root_of, run_command
from core.errors import EXIT_OK, UsageError
from core.run_facts import note_run
from core.runlog import read_status
from pipelines.stream_configs import add_run_arguments, chosen_configs


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall tag", description="Sets tags and a note of a run, for both streams unless one is named."
    )
    add_run_arguments(parser)
    parser.add_argument("tags", nargs="*", metavar="TAG", help="tags to add")
    parser.add_argument("--remove", action="append", default=[], metavar="TAG", help="tag to remove; may be repeated")
    parser.add_argument("--note", metavar="TEXT", help="replaces the note; an empty text removes it")

    def command(arguments: argparse.Namespace) -> int:
        root = root_of(arguments)
        folders = {
            config.stream: folder
            for config in chosen_configs(arguments, root)
            if read_status(folder := root / config.logging.log_dir / arguments.run) is not None
        }
        if not folders:
            raise UsageError(f"no run {arguments.run}", hint="`landfall runs` lists the runs")
        changed = {
            stream: note_run(folder, add=arguments.tags, remove=arguments.remove, note=arguments.note)
            for stream, folder in folders.items()
        }
        print_json(changed, indent=2)
        return EXIT_OK

    return run_command(command, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
