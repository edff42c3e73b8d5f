"""``jmm compare``: where two models differ on a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm import inspect
from jmm.cli.options import add_output_options, says
from jmm.embedder import Embedder
from jmm.inspect import output

if TYPE_CHECKING:
    from PIL import Image

    from jmm.trace import Trace

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_N_MODELS = 2


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "compare",
        help="draw where two models, or a model and transformers, differ on a picture",
        description="Draws the cosine distance of each token's hidden state before pooling, at a "
        "low and at a high resolution. The numbers lie beside OUT.png, in OUT.json. Give --model "
        "and --mmproj twice, or once with --reference.",
    )
    parser.add_argument("image", type=Path, metavar="IMAGE")
    parser.add_argument("out", type=Path, metavar="OUT.png")
    parser.add_argument(
        "--model", action="append", default=[], metavar="GGUF", help="language model, A then B"
    )
    parser.add_argument(
        "--mmproj", action="append", default=[], metavar="GGUF", help="vision tower, A then B"
    )
    parser.add_argument(
        "--reference", type=Path, metavar="FOLDER", help="Hugging Face checkpoint, run in fp32"
    )
    parser.add_argument("--profile", metavar="NAME", help="model family; default: from the file")
    parser.add_argument("--task", metavar="NAME", help="one of the profile's tasks")
    parser.add_argument("--threads", type=int, metavar="N", help="default: the cores allowed")
    parser.add_argument(
        "--low-pixels", type=int, metavar="N", help="default: a quarter of the high resolution"
    )
    parser.add_argument("--high-pixels", type=int, metavar="N", help="default: the model's limit")
    add_output_options(parser)
    parser.set_defaults(fail=parser.error)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Draws the two maps."""
    wanted = 1 if arguments.reference else _N_MODELS
    if len(arguments.model) != wanted or len(arguments.mmproj) != wanted:
        arguments.fail(
            f"{len(arguments.model)} --model and {len(arguments.mmproj)} --mmproj; two of each "
            "are needed, or one of each with --reference"
        )
    output.check(arguments.out, arguments.image)
    pairs = list(zip(arguments.model, arguments.mmproj, strict=True))
    reference = inspect.Reference(arguments.reference) if arguments.reference else None
    picture, first = _trace(arguments, *pairs[0])
    if reference is None:
        _, second = _trace(arguments, *pairs[1])
        names = pairs[0][0], pairs[1][0]
        found = inspect.compare(names, picture, first, second)
    else:
        names = pairs[0][0], f"transformers fp32, {arguments.reference}"
        found = inspect.compare(names, picture, first, reference.trace)
    record: dict[str, Any] = {"image": str(arguments.image), **found.record()}
    numbers = output.save(arguments.out, found.draw(), record)
    if not says(arguments, record):
        return 0
    print("tokens      mean       p95        max        pooled")
    for part in (record["low"], record["high"]):
        size = "{1} x {0}".format(*part["grid"])
        shown = "".join(f"{part[name]:<11.3g}" for name in ("mean", "p95", "max", "pooled"))
        print(f"{size:12}{shown}".rstrip())
    print(f"written: {arguments.out}, {numbers}")
    return 0


def _trace(
    arguments: argparse.Namespace, model: str, mmproj: str
) -> tuple[Image.Image, list[Trace]]:
    settings = {"profile": arguments.profile, "task": arguments.task}
    with Embedder(model, mmproj, **settings, n_threads=arguments.threads) as embedder:
        return inspect.resolutions(
            embedder,
            arguments.image,
            low_pixels=arguments.low_pixels,
            high_pixels=arguments.high_pixels,
        )
