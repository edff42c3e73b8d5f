"""Writes the built-in model, src/jmm/demo/tiny-*.gguf: seeded, untrained, the same bytes each time.

python tools/make_demo_model.py [FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import extras, gguf_writer, tiny

ROOT = Path(__file__).parent.parent
NAME = "jmm-demo-untrained"
METADATA = {
    "general.description": (
        "Seeded random weights in the Qwen2.5-VL architecture, never trained: its vectors "
        "carry no meaning. For trying out and testing jmm only."
    ),
    "general.license": "mit",
    "jmm.profile": "qwen2.5-vl",
}
MODEL = tiny.TinyModel(
    name=NAME,
    family="qwen2_5_vl",
    seed=20,
    vocabulary="bytes_only",
    hidden=64,
    ffn=160,
    layers=2,
    heads=2,
    kv_heads=1,
    mrope_section=(4, 6, 6),
    tied=True,
    v_hidden=64,
    v_ffn=160,
    v_layers=2,
    v_heads=2,
    wa_pattern=2,
)


def make(folder: Path) -> list[Path]:
    """Writes both files into ``folder``."""
    weights = tiny.weights(MODEL)
    text, mmproj = folder / "tiny-text.gguf", folder / "tiny-mmproj.gguf"
    options = {"name": NAME, "metadata": METADATA}
    return [
        gguf_writer.write_text(
            MODEL, weights, text, "F16", **options, extra=extras.projector(MODEL).tensors("F16")
        ),
        gguf_writer.write_mmproj(MODEL, weights, mmproj, "F16", **options),
    ]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "src" / "jmm" / "demo")
    for path in make(parser.parse_args().folder):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
