"""The jmm of this process, as results name it."""

from __future__ import annotations

from typing import Any

import numpy as np

import jmm


def describe() -> dict[str, Any]:
    return {"build": jmm.build_info(), "numpy": np.__version__}
