"""`python -m gpushare_node`."""

import sys

from gpushare_node.cli import main

sys.exit(main())
