"""`python -m migration` is `landfall migrate`."""

import sys

from migration.command import main

if __name__ == "__main__":
    sys.exit(main())
