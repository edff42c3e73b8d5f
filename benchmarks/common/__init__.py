"""What the benchmarks share. Importing it makes the test helpers of this checkout importable."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

for folder in (ROOT / "tests", ROOT / "tools"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
