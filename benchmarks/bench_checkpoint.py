"""What does it take to bring a checkpoint of full size into use?

    python benchmarks/bench_checkpoint.py [--layers full] [--output FILE]

Writes a checkpoint of jina-embeddings-v4's layout and dimensions with random bfloat16 weights, its
projector and the adapters of its three tasks, then converts it, quantizes both files and embeds one
page, each step in a process of its own. Needs 22 GB of free disk with all layers; what was written
is removed at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import jmm_build, options, table
from common.shape import HELP_LAYERS, Weights, parse_layers, true_width

from support import checkpoint
from support.tiny import TinyModel

PIECE = 2**22  # weights that are drawn at once
PAGE = (2339, 1654)  # A4 at 200 dpi
PROJECTOR_DIM = 128
DIMS = (128, 256, 512, 1024)  # and the whole vector
RANK = ALPHA = 32

EMBED = """
import sys, numpy as np
from jmm import Embedder
page = np.random.default_rng(0).integers(0, 256, ({height}, {width}, 3), np.uint8)
text, mmproj, *adapters = sys.argv[1:]
tasks = dict(zip({tasks}, adapters, strict=True))
with Embedder(text, mmproj, adapters=tasks, profile="jina-embeddings-v4") as embedder:
    vector, tokens = embedder.encode_images(page, multi_vector="both")
assert tokens.shape[1] == {projector_dim}, tokens.shape
for rows in (vector[None], tokens):
    assert np.isfinite(rows).all() and np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-5
"""


def write_checkpoint(model: TinyModel, folder: Path) -> None:
    """Writes the folder that `jmm convert` reads, piece by piece."""
    shapes = dict(Weights(model).shapes())
    adapters = {}
    for module in [*checkpoint.lora_modules(shapes), checkpoint.PROJECTOR]:
        n_out, n_in = shapes.get(f"{module}.weight", (PROJECTOR_DIM, model.hidden))
        for task in checkpoint.TASKS:
            name = f"base_model.model.{module}.lora_{{}}.{task}.weight"
            adapters |= {name.format("A"): (RANK, n_in), name.format("B"): (n_out, RANK)}
    shapes[f"{checkpoint.PROJECTOR}.weight"] = (PROJECTOR_DIM, model.hidden)
    shapes[f"{checkpoint.PROJECTOR}.bias"] = (PROJECTOR_DIM,)
    named = {checkpoint.rename(name, checkpoint.JINA): shape for name, shape in shapes.items()}
    rng = np.random.Generator(np.random.SFC64(model.seed))
    (folder / "adapters").mkdir()
    write_weights(named, folder / "model.safetensors", rng)
    write_weights(adapters, folder / "adapters" / "adapter_model.safetensors", rng)
    ranks = {"r": RANK, "lora_alpha": ALPHA}
    legal = [*(dim for dim in DIMS if dim < model.hidden), model.hidden]
    dims = {"multi_vector_projector_dim": PROJECTOR_DIM, "matryoshka_dims": legal}
    for name, settings in {
        "adapters/adapter_config": checkpoint.ADAPTER_CONFIG | ranks,
        "config": checkpoint.config(model, checkpoint.JINA) | dims,
        "tokenizer": checkpoint.tokenizer(model),
        "tokenizer_config": checkpoint.TOKENIZER_CONFIG,
        "preprocessor_config": checkpoint.PREPROCESSOR,
    }.items():
        checkpoint.write_json(folder / f"{name}.json", settings)


def write_weights(
    shapes: Mapping[str, tuple[int, ...]], path: Path, rng: np.random.Generator
) -> None:
    """Writes random bfloat16 weights as safetensors."""
    head: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * int(np.prod(shape))
        head[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    encoded = json.dumps(head).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for shape in shapes.values():
            n_left = int(np.prod(shape))
            # near what training leaves: norms at 1, matrices of unit gain
            mean, width = (1.0, 0.2) if len(shape) == 1 else (0.0, (12 / shape[-1]) ** 0.5)
            while n_left:
                n = min(n_left, PIECE)
                values = (rng.random(n, dtype=np.float32) - 0.5) * np.float32(width)
                bits = (values + np.float32(mean)).view(np.uint32) >> 16
                bits.astype("<u2").tofile(file)
                n_left -= n


def measured(*command: object) -> dict[str, float]:
    """Runs Python with these arguments: seconds, processor seconds and peak bytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *map(str, command)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {' '.join(map(str, command[:4]))}")
    return {
        "seconds": time.perf_counter() - start,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024,
    }


def steps(folder: Path) -> dict[str, dict[str, float]]:
    source, out = folder / "checkpoint", folder / "out"
    jmm = ("-m", "jmm")
    found = {"convert": measured(*jmm, "convert", source, out, "--quiet")}
    found["convert"]["bytes"] = sum(path.stat().st_size for path in out.iterdir())
    files = json.loads((out / "jmm.json").read_text())
    text, mmproj = out / files["model"], out / files["mmproj"]
    for path, file_type in ((text, "q4_k_m"), (mmproj, "q8_0")):
        target = folder / f"{path.stem}-{file_type}.gguf"
        step = measured(*jmm, "quantize", path, target, "--type", file_type, "--quiet")
        found[f"quantize {path.stem} to {file_type}"] = step | {"bytes": target.stat().st_size}
    adapters = [out / files["adapters"][task] for task in checkpoint.TASKS]
    program = EMBED.format(
        height=PAGE[0],
        width=PAGE[1],
        tasks=checkpoint.TASKS,
        projector_dim=PROJECTOR_DIM,
    )
    small = [folder / f"{text.stem}-q4_k_m.gguf", folder / f"{mmproj.stem}-q8_0.gguf"]
    found["load, one page, q4_k_m + q8_0"] = measured("-c", program, *small, *adapters)
    found["load, one page, bf16"] = measured("-c", program, text, mmproj, *adapters)
    return found


def tables(report: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{step['seconds']:.0f}",
            f"{step['processor']:.0f}",
            f"{step['peak'] / 1e6:.0f}",
            f"{step['bytes'] / 1e6:.0f}" if "bytes" in step else "-",
        ]
        for name, step in report["steps"].items()
    ]
    return table.markdown(["step", "s", "CPU s", "peak MB", "written MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--layers", default="full", help=HELP_LAYERS)
    parser.add_argument("--output", type=Path, help="keep the results as JSON")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary one")
    arguments = parser.parse_args()
    fields = dataclasses.asdict(true_width(parse_layers(arguments.layers)))
    model = TinyModel(**fields | {"vocabulary": "qwen"})
    report = options.begin(arguments, "checkpoint", {"jmm": jmm_build.describe()})
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        (folder / "checkpoint").mkdir()
        write_checkpoint(model, folder / "checkpoint")
        size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
        report |= {"checkpoint_bytes": size, "steps": steps(folder)}
    options.keep(arguments, report)
    print(tables(report))


if __name__ == "__main__":
    main()
