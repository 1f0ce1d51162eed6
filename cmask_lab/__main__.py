"""``python -m cmask_lab`` is the command ``cmask``."""

import sys

from cmask_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
