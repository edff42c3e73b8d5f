"""``python -m jmm``."""

import sys

from jmm.cli import main

sys.exit(main())
