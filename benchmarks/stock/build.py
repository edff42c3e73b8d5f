"""Builds stock llama.cpp of the pinned version, without our patches, for the benchmarks.

    python benchmarks/stock/build.py [--generic]

Everything lies in build/bench-stock; CMake and a C++17 compiler are needed. --generic builds for
AVX2 machines (as JMM_NATIVE=OFF does for jmm) instead of this one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import ROOT

# What cmake/LlamaCpp.cmake sets without JMM_NATIVE.
GENERIC = ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")
FOLDER = ROOT / "build" / "bench-stock"


def library() -> Path:
    return FOLDER / "jmm_stock.so"


def build(*, generic: bool) -> Path:
    import llama_source

    tree = FOLDER / "llama.cpp"
    print(llama_source.patch(llama_source.Project(ROOT, tree), until="none"), flush=True)
    features = GENERIC if generic else []
    options = [f"-DGGML_NATIVE={'OFF' if generic else 'ON'}"]
    options += [f"-DGGML_{feature}=ON" for feature in features]
    options += ["-G", "Ninja"] if shutil.which("ninja") else []
    source, binary = Path(__file__).parent, FOLDER / "cmake"
    configure = ["cmake", "-S", source, "-B", binary, f"-DSTOCK_TREE={tree}", *options]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", binary, "-j", str(os.cpu_count())], check=True)
    shutil.copy2(binary / "jmm_stock.so", library())
    return library()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--generic", action="store_true")
    build(generic=parser.parse_args().generic)
    print(f"built {library().relative_to(ROOT)}")


if __name__ == "__main__":
    main()
