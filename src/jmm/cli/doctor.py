"""``jmm doctor``: what is wrong with this machine, a model's files, or what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jmm import doctor
from jmm.cli.options import add_model_options, add_output_options, says, shows_progress
from jmm.cli.output import counted, plain, row
from jmm.doctor.graph import Place

if TYPE_CHECKING:
    import argparse

    from jmm.doctor import Examination

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_HEAD = 12


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Declares the command."""
    parser = commands.add_parser(
        "doctor",
        help="find out what is wrong with a machine, a model or an item",
        description="Tells about this machine and installation, reads all weights of a model, "
        "runs a text and a picture, and looks at every value of every layer: for NaN or infinity "
        "it names the first place. Exit status 1 with findings.",
    )
    parser.add_argument("path", nargs="?", metavar="MODEL", help="the same as --model")
    add_model_options(parser)
    parser.add_argument(
        "--text", nargs="+", action="extend", default=[], metavar="TEXT", help="run these too"
    )
    parser.add_argument(
        "--image",
        nargs="+",
        action="extend",
        default=[],
        type=Path,
        metavar="FILE",
        help="run these pictures too",
    )
    add_output_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Examines, and prints what was found; 1 with findings."""
    found = doctor.examine(
        arguments.path or arguments.model,
        arguments.mmproj,
        profile=arguments.profile,
        task=arguments.task,
        n_threads=arguments.threads,
        texts=arguments.text,
        images=arguments.image,
        show_progress=shows_progress(arguments),
    )
    status = 0 if found.is_healthy else 1
    if says(arguments, found.record()):
        _print_environment(found.environment)
        _print_model(found)
        _print_runs(found)
    if arguments.json:
        return status
    for warning in found.warnings:
        _print("warning", warning)
    for finding in found.findings:
        _print("finding", finding)
    if found.is_healthy and not arguments.quiet:
        print("healthy: no findings")
    return status


def _print_environment(found: dict[str, Any]) -> None:
    build, sets, threads = found["build"], found["instruction_sets"], found["threads"]
    _print(
        "jmm",
        f"{build['version']}, llama.cpp {build['llama_cpp']} with "
        f"{len(build['patches'])} patches, {build['compiler']}",
    )
    _print("python", f"{found['python']}, {found['system']}")
    _print("packages", _versions(found["packages"]))
    for extra, packages in found["extras"].items():
        missing = [name for name, version in packages.items() if version is None]
        _print(f"[{extra}]", f"missing: {', '.join(missing)}" if missing else _versions(packages))
    _print("processor", found["processor"] or "unknown")
    machine = sets["machine"]
    _print("  has", "unknown" if machine is None else " ".join(machine))
    _print("  build", " ".join(sets["build"]) or "needs nothing beyond the plainest")
    _print(
        "threads",
        f"{threads['default']} by default; this process may use {threads['affinity'] or 'all'} "
        f"of {threads['machine']}",
    )
    memory = {name: value for name, value in found["memory"].items() if value is not None}
    _print("memory", ", ".join(f"{_size(value)} {name}" for name, value in memory.items()))
    for device in found["devices"]:
        _print("device", f"{device['name']} ({device['kind']}): {device['description']}")


def _print_model(found: Examination) -> None:
    for file in found.files:
        tensors = counted(file["n_tensors"], "tensor")
        _print("file", f"{file['path']}: {tensors}, {_size(file['n_bytes'])} of weights")
    if found.model is None:
        return
    info = found.model
    _print("profile", f"{info['profile']}: {info['profile_reason']}")
    dims = f"{info['dim']}"
    if info["dims"]:
        dims += f", or {', '.join(map(str, info['dims']))}"
    if info["multi_vector_dim"]:
        dims += f"; token vectors {info['multi_vector_dim']}"
    _print("dim", dims)
    _print(
        "limits",
        f"{info['n_ctx']:,} tokens; pictures {info['min_pixels']:,} to {info['max_pixels']:,} "
        f"pixels: {info['pixels_reason']}"
        if info["mmproj"]
        else f"{info['n_ctx']:,} tokens; no pictures",
    )


def _print_runs(found: Examination) -> None:
    for one in found.runs:
        tokens = "" if one.n_tokens is None else f"{counted(one.n_tokens, 'token')}, "
        state = "failed" if one.error else "finite" if one.is_finite else "NaN or infinity"
        _print("ran", f"{one.item}: {tokens}{state}")
    if not found.peaks:
        return
    print("\ngreatest magnitudes, which half precision holds up to 65504")
    for peak in found.peaks:
        print(f"  {Place(peak.part, peak.layer)!s:26}{peak.peak:10.4g}  {plain(peak.node)}")
    print()


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:,.1f} GB"


def _print(head: str, words: str) -> None:
    print(row(f"{head:{_HEAD}}", plain(words)))
