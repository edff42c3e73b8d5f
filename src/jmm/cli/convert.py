"""``jmm convert``: a Hugging Face checkpoint to the files that jmm loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from jmm.bundle import MANIFEST
from jmm.cli.ending import unwound_by_signals
from jmm.cli.options import add_output_options, positive, says, shows_progress

if TYPE_CHECKING:
    import argparse

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "convert",
        help="convert a Hugging Face checkpoint",
        description="Converts a checkpoint of jina-embeddings-v4, Qwen-VL or ColQwen "
        "to GGUF files. Types: auto (the checkpoint's), f32, f16, bf16, q8_0.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    for part in ("text", "vision", "adapter"):
        parser.add_argument(f"--{part}-type", default="auto", metavar="TYPE", help="default: auto")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--merge", metavar="TASK", help="add one task's adapter to the weights")
    choice.add_argument(
        "--no-adapters", dest="use_adapters", action="store_false", help="leave the adapters out"
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="BASE_DIR",
        help="the model that CHECKPOINT_DIR, an adapter alone, belongs to",
    )
    parser.add_argument("--profile", metavar="NAME", help="default: from the checkpoint")
    parser.add_argument("--min-pixels", type=positive, metavar="N", help="least area of a picture")
    parser.add_argument(
        "--max-pixels", type=positive, metavar="N", help="greatest area of a picture"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what was converted before"
    )
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Converts, and prints where to and with which profile."""
    from jmm.convert import convert  # its extra is needed by this command alone

    with unwound_by_signals():
        out = convert(
            arguments.checkpoint,
            arguments.out,
            text_type=arguments.text_type,
            vision_type=arguments.vision_type,
            adapter_type=arguments.adapter_type,
            use_adapters=arguments.use_adapters,
            merge=arguments.merge,
            base=arguments.base,
            profile=arguments.profile,
            min_pixels=arguments.min_pixels,
            max_pixels=arguments.max_pixels,
            overwrite=arguments.overwrite,
            show_progress=shows_progress(arguments),
        )
    manifest = json.loads((out / MANIFEST).read_bytes())
    if says(arguments, {"folder": str(out), **manifest}):
        print(f"{out}: profile {manifest['profile']} ({manifest['profile_reason']})")
    return 0
