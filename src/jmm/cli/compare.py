"""``jmm compare``: where two models differ on a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm import inspect
from jmm.bundle import is_bundle
from jmm.cli.options import add_output_options, add_threads_option, png, positive, says
from jmm.cli.page import add_page_option, check_page, read_page
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
        "low and at a high resolution. The numbers lie beside OUT.png, in OUT.json. Give two "
        "models, A then B, or one and --reference: each is a folder that `jmm convert` has "
        "written, or a GGUF file with its --mmproj.",
    )
    parser.add_argument("image", type=Path, metavar="IMAGE", help="a picture or a PDF")
    parser.add_argument("out", type=png, metavar="OUT.png")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="MODEL",
        help="GGUF file of a language model, or a converted folder; A then B",
    )
    parser.add_argument(
        "--mmproj",
        action="append",
        default=[],
        metavar="GGUF",
        help="vision tower of each --model that is a file, in their order",
    )
    parser.add_argument(
        "--reference", type=Path, metavar="FOLDER", help="Hugging Face checkpoint, run in fp32"
    )
    add_page_option(parser)
    parser.add_argument("--profile", metavar="NAME", help="model family; default: from the file")
    parser.add_argument("--task", metavar="NAME", help="one of the profile's tasks")
    add_threads_option(parser)
    parser.add_argument(
        "--low-pixels", type=positive, metavar="N", help="default: a quarter of the high resolution"
    )
    parser.add_argument(
        "--high-pixels", type=positive, metavar="N", help="default: the model's limit"
    )
    add_output_options(parser)
    parser.set_defaults(fail=parser.error)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Draws the two maps."""
    pairs = _pairs(arguments)
    check_page(arguments, arguments.image)
    output.check(arguments.out, arguments.image)
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
    print("rows x columns  mean       p95        max        pooled")
    for part in (record["low"], record["high"]):
        size = "{} x {}".format(*part["grid"])
        shown = "".join(f"{part[name]:<11.3g}" for name in ("mean", "p95", "max", "pooled"))
        print(f"{size:16}{shown}".rstrip())
    print(f"written: {arguments.out}, {numbers}")
    return 0


def _pairs(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Each model with its tower; None for a folder, which has its own."""
    wanted = 1 if arguments.reference else _N_MODELS
    models, towers = arguments.model, arguments.mmproj
    is_folder = [is_bundle(model) for model in models]
    if len(models) != wanted or len(towers) != is_folder.count(False):
        arguments.fail(
            f"{len(models)} --model, {is_folder.count(True)} of them folders, and {len(towers)} "
            "--mmproj; two models are needed, or one with --reference, and an --mmproj for each "
            "that is a file"
        )
    rest = iter(towers)
    return [
        (model, None if folder else next(rest))
        for model, folder in zip(models, is_folder, strict=True)
    ]


def _trace(
    arguments: argparse.Namespace, model: str, mmproj: str | None
) -> tuple[Image.Image, list[Trace]]:
    settings = {"profile": arguments.profile, "task": arguments.task}
    with Embedder(model, mmproj, **settings, n_threads=arguments.threads) as embedder:
        return inspect.resolutions(
            embedder,
            read_page(arguments, arguments.image, embedder),
            low_pixels=arguments.low_pixels,
            high_pixels=arguments.high_pixels,
        )
