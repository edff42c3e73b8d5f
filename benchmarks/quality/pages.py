"""Makes a set of pages, queries and qrels from the vignettes of five Debian packages.

    pip install pypdfium2
    python benchmarks/quality/pages.py FOLDER [--dpi 96] [--sentences 1] [--seed 0]

It needs apt-get and dpkg, on any Debian release: the numbers of pages and queries depend on the
packages' versions, which FOLDER/set.json records. Pages are 24-bit PNG. texts.py says how queries
are found; collection.py describes the layout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality import texts

PACKAGES = ("r-cran-survival", "r-cran-lme4", "r-cran-zoo", "r-cran-vcd", "r-cran-sp")
POINTS_PER_INCH = 72


def fetch(folder: Path) -> dict[str, dict[str, str]]:
    """Downloads and unpacks the packages, once.

    Returns:
        Version and sha256 by package.
    """
    archives = folder / "debs"
    archives.mkdir(parents=True, exist_ok=True)
    found = {}
    for package in PACKAGES:
        if not list(archives.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "-qq", "download", package], cwd=archives, check=True)
        (archive,) = archives.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", archive, folder / "unpacked"], check=True)
        version = subprocess.run(
            ["dpkg-deb", "--field", archive, "Version"], check=True, capture_output=True, text=True
        )
        found[package] = {
            "version": version.stdout.strip(),
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        }
    return found


def render(folder: Path, dpi: int) -> Iterator[dict[str, Any]]:
    """Rows of the corpus: every page of every vignette as a picture, with its text."""
    import pypdfium2

    for path in sorted((folder / "unpacked").rglob("*.pdf")):
        name = f"{path.parent.parent.name}-{path.stem}"
        with pypdfium2.PdfDocument(path) as document:
            for number, page in enumerate(document, 1):
                identifier = f"{name}-{number:03}"
                image = f"images/{identifier}.png"
                page.render(scale=dpi / POINTS_PER_INCH).to_pil().convert("RGB").save(
                    folder / image
                )
                text = texts.clean(page.get_textpage().get_text_bounded())
                yield {"corpus-id": identifier, "image": image, "text": text, "doc-id": name}


def make(folder: Path, *, dpi: int, sentences: int, seed: int) -> dict[str, Any]:
    """Writes the set.

    Returns:
        What set.json holds.
    """
    packages = fetch(folder)
    (folder / "images").mkdir(exist_ok=True)
    corpus = list(render(folder, dpi))
    pages = {row["corpus-id"]: row["text"] for row in corpus}
    queries = texts.choose(pages, sentences=sentences, seed=seed)
    names = [f"q{number:04}" for number in range(len(queries))]
    pairs = list(zip(names, queries, strict=True))
    write(folder / "corpus.jsonl", corpus)
    write(
        folder / "queries.jsonl",
        [{"query-id": name, "query": query.text, "kind": query.kind} for name, query in pairs],
    )
    write(
        folder / "qrels.jsonl",
        [{"query-id": name, "corpus-id": query.page, "score": 1} for name, query in pairs],
    )
    made = {
        "name": "debian-vignettes",
        "packages": packages,
        "pypdfium2": metadata.version("pypdfium2"),
        "dpi": dpi,
        "seed": seed,
        "documents": len({row["doc-id"] for row in corpus}),
        "pages": len(corpus),
        "pages_with_query": len({query.page for query in queries}),
        "queries": dict(Counter(query.kind for query in queries)),
    }
    (folder / "set.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dpi", type=int, default=96)
    parser.add_argument("--sentences", type=int, default=1, help="most of them per page")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    made = make(
        arguments.folder, dpi=arguments.dpi, sentences=arguments.sentences, seed=arguments.seed
    )
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
