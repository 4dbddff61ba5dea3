"""`python -m gpushare`: the same as the command `gpushare`."""

import sys

from gpushare.cli import main

if __name__ == "__main__":
    sys.exit(main())
