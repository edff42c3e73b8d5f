"""A machine and a model looked at from all sides: what is there, and what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image, ImageDraw

from jmm import bundle, demo, files
from jmm.doctor import findings, weights
from jmm.doctor.environment import environment
from jmm.doctor.run import Run, run
from jmm.doctor.weights import BadTensor
from jmm.embedder import Embedder
from jmm.errors import JmmError
from jmm.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jmm.doctor.graph import Peak
    from jmm.gguf_header import Header

Path = str | os.PathLike[str]

TEXT = "Total revenue by region, 2019 to 2024"
"""The text that every examination runs."""


@dataclass(frozen=True)
class Examination:
    """What was found.

    Attributes:
        environment: See `environment`.
        files: Per model file its ``path``, ``n_tensors`` and ``n_bytes`` of weights.
        model: `Embedder.info`; None if the model cannot be loaded.
        bad_tensors: Weights that are not finite.
        runs: Per item what it gave.
        failure: Why the model cannot be loaded; empty if it can.
    """

    environment: dict[str, Any]
    files: list[dict[str, Any]] = field(default_factory=list)
    model: dict[str, Any] | None = None
    bad_tensors: list[BadTensor] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    failure: str = ""

    @property
    def findings(self) -> list[str]:
        """What is wrong, in sentences; empty for a healthy model."""
        found = [self.failure] if self.failure else []
        found += [findings.of_tensor(tensor) for tensor in self.bad_tensors]
        bad = {tensor.name for tensor in self.bad_tensors}
        for one in self.runs:
            found += findings.of_run(one, bad)
        return found

    @property
    def warnings(self) -> list[str]:
        """What is right here and may go wrong elsewhere."""
        return [findings.of_peak(peak) for peak in self.peaks if peak.overflows_f16]

    @property
    def is_healthy(self) -> bool:
        """Whether there are no findings; warnings do not count."""
        return not self.findings

    @property
    def peaks(self) -> list[Peak]:
        """The greatest magnitudes of each layer over all runs."""
        return findings.join_peaks(peak for one in self.runs for peak in one.peaks)

    def record(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "healthy": self.is_healthy,
            "findings": self.findings,
            "warnings": self.warnings,
            **asdict(self),
        }


def examine(
    model: Path | None = None,
    mmproj: Path | None = None,
    *,
    profile: str | None = None,
    task: str | None = None,
    n_threads: int | None = None,
    texts: Iterable[str] = (),
    images: Iterable[Any] = (),
    show_progress: bool = False,
) -> Examination:
    """Looks at the machine, at all weights, and at every value that a model computes.

    Slow: each node of the graphs is computed apart, and its values are read.

    Args:
        model: As of `Embedder`: GGUF file or folder; None for the built-in model.
        mmproj: GGUF file of the vision tower.
        profile: As of `Embedder`.
        task: As of `Embedder`.
        n_threads: As of `Embedder`.
        texts: Documents to run, beside one of our own.
        images: Pictures to run, beside one that is drawn, as `Embedder.encode_images` takes them.
        show_progress: Draws a progress bar on stderr while weights are read.

    Returns:
        Examination: ``is_healthy`` and ``findings`` say it in short. A model that cannot be
        loaded, and an item that fails, are findings and no errors.

    Raises:
        InputError: An argument is not allowed.

    Example:
        >>> examine().is_healthy
        True
    """
    surroundings = environment()
    found: list[BadTensor] = []
    read: list[dict[str, Any]] = []
    try:
        headers = list(_headers(model, mmproj))
        total = sum(weights.n_bytes(header) for header in headers)
        with progress_bar(total, shown=show_progress, unit="B", label="weights") as advance:
            for header in headers:
                found += weights.scan(header, advance)
                read.append(
                    {
                        "path": header.path,
                        "n_tensors": len(header.shapes),
                        "n_bytes": weights.n_bytes(header),
                    }
                )
        embedder = Embedder(model, mmproj, profile=profile, task=task, n_threads=n_threads)
    except (JmmError, OSError) as error:
        return Examination(surroundings, read, None, found, [], str(error))
    with embedder:
        runs = list(_runs(embedder, texts, images))
        return Examination(surroundings, read, embedder.info, found, runs)


def _headers(model: Path | None, mmproj: Path | None) -> Iterator[Header]:
    """Of all files of a model, none of them checked against another."""
    paths: list[Path | None] = [model, mmproj]
    if model is None:
        paths = list(demo.paths())
    elif bundle.is_bundle(model):
        named = bundle.open_bundle(model).arguments
        paths = [named["model"], named["mmproj"], *(named["adapters"] or {}).values()]
    for path in paths:
        if path is not None:
            header = files.read_header(path)
            yield header.joined(files.read_header(part) for part in header.part_paths())


def _runs(embedder: Embedder, texts: Iterable[str], images: Iterable[Any]) -> Iterator[Run]:
    items: list[tuple[Any, str, Literal["document", "image"]]] = [(TEXT, "our text", "document")]
    items += [(text, f"text {text!r}", "document") for text in texts]
    if embedder.info["mmproj"] is not None:
        items.append((_page(), "our picture", "image"))
    items += [(image, f"picture {_name(image)}", "image") for image in images]
    engine = embedder._engine
    engine.record_nodes()
    for item, name, kind in items:
        yield run(embedder, engine, item, name, kind)


def _name(image: object) -> str:
    return os.fsdecode(image) if isinstance(image, str | os.PathLike) else repr(image)


def _page() -> Image.Image:
    """A page with a heading, a paragraph and a chart, 336 x 252 pixels."""
    page = Image.new("RGB", (336, 252), "white")
    canvas = ImageDraw.Draw(page)
    canvas.text((20, 16), TEXT, fill="black")
    for row in range(6):
        canvas.line((20, 44 + 10 * row, 300 - 13 * row, 44 + 10 * row), fill="grey", width=3)
    for column, (height, colour) in enumerate(((40, "navy"), (90, "crimson"), (65, "seagreen"))):
        canvas.rectangle((40 + 90 * column, 230 - height, 95 + 90 * column, 230), fill=colour)
    return page
