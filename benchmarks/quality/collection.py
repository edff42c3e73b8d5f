"""A retrieval set from a folder: queries, pages, and which page answers which query.

Three tables lie in the folder, each as NAME.jsonl, NAME.parquet or NAME/*.parquet:

    corpus    corpus-id, and image, text or both
    queries   query-id, query
    qrels     query-id, corpus-id, score (relevant above 0)

These are ViDoRe v2's names; mteb's own "_id" or "id" for the first and "text" for a query are taken
too, and further columns are left alone. An image is a path, relative to the folder, or, in
parquet, datasets' struct of bytes and path. ViDoRe v1's layout is known as well: one table, "data"
or "test", with image, image_filename and query in each row. Rows of one image_filename are one
page, equal queries are one query, and a row without a query is a page that answers none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
# As datasets holds a picture: bytes, or a path.
Image = dict[str, Any]

TABLES = ("corpus", "queries", "qrels")
PAIRS = ("data", "test")
_CORPUS_ID = ("corpus-id", "corpus_id", "_id", "id")
_QUERY_ID = ("query-id", "query_id", "_id", "id")
_QUERY = ("query", "text")


class CollectionError(ValueError):
    """The folder is no set; the text tells the file, what was found and what is needed."""


@dataclass
class Collection:
    """A retrieval set in memory; pictures given by path are not read.

    Attributes:
        name: For reports.
        queries: Text by id.
        images: Picture by page id, empty if the pages have none.
        texts: Text by page id, empty if the pages have none.
        qrels: Score by page id, by query id.
    """

    name: str
    queries: dict[str, str] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, int]] = field(default_factory=dict)

    def shortened(self, n_characters: int | None) -> Collection:
        """With no more than so many characters of each page's text."""
        texts = {page: text[:n_characters] for page, text in self.texts.items()}
        return Collection(self.name, self.queries, self.images, texts, self.qrels)

    def thinned(self, n_queries: int | None) -> Collection:
        """With so many queries, evenly spaced; the pages stay."""
        names = list(self.queries)
        n = min(n_queries or len(names), len(names))
        kept = {name: self.queries[name] for name in (names[i * len(names) // n] for i in range(n))}
        qrels = {query: pages for query, pages in self.qrels.items() if query in kept}
        return Collection(self.name, kept, self.images, self.texts, qrels)

    def items(self, kind: str) -> dict[str, Any]:
        """What is embedded of each page.

        Args:
            kind: "images" or "texts".

        Raises:
            CollectionError: The pages have none of the kind, or one has a blank text.
        """
        found: dict[str, Any] = getattr(self, kind)
        if not found:
            raise CollectionError(f"{self.name}: the pages have no {kind}")
        blank = [page for page, item in found.items() if isinstance(item, str) and not item.strip()]
        if blank:
            raise CollectionError(
                f"{self.name}: {len(blank)} pages have a blank text, {blank[0]!r} first"
            )
        return found

    def fingerprint(self, items: str) -> str:
        """Tells sets apart: queries, qrels, page ids and, if they are embedded, the texts."""
        pages = self.texts if items == "texts" else list(self.images)
        told = json.dumps([self.queries, self.qrels, pages], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()


def read(folder: Path) -> Collection:
    """Reads and checks a set.

    Raises:
        CollectionError: A table or column is missing, an id occurs twice or is unknown, or a page
            has neither image nor text.
    """
    pairs = next((name for name in PAIRS if _files(folder, name)), None)
    if pairs and not any(_files(folder, name) for name in TABLES):
        result = _from_pairs(folder, pairs)
    else:
        result = _from_tables(folder)
    _check(result, folder)
    return result


def _from_tables(folder: Path) -> Collection:
    result = Collection(folder.name)
    for row in _rows(folder, "corpus"):
        page = str(_value(row, _CORPUS_ID, "corpus"))
        if page in result.images or page in result.texts:
            raise CollectionError(f"{folder}/corpus: page {page!r} occurs twice")
        if row.get("image") is not None:
            result.images[page] = _image(row["image"], folder)
        if isinstance(row.get("text"), str):
            result.texts[page] = row["text"]
    for row in _rows(folder, "queries"):
        query = str(_value(row, _QUERY_ID, "queries"))
        if query in result.queries:
            raise CollectionError(f"{folder}/queries: query {query!r} occurs twice")
        result.queries[query] = _value(row, _QUERY, "queries")
    for row in _rows(folder, "qrels"):
        query, page = str(_value(row, _QUERY_ID[:2], "qrels")), _value(row, _CORPUS_ID[:2], "qrels")
        result.qrels.setdefault(query, {})[str(page)] = int(_value(row, ("score",), "qrels"))
    return result


def _from_pairs(folder: Path, name: str) -> Collection:
    result = Collection(folder.name)
    ids: dict[str, str] = {}
    for row in _rows(folder, name):
        page = str(_value(row, ("image_filename",), name))
        if page not in result.images:
            result.images[page] = _image(_value(row, ("image",), name), folder)
        text = row.get("query")
        if not text:
            continue
        query = ids.setdefault(text, f"q{len(ids)}")
        result.queries[query] = text
        result.qrels.setdefault(query, {})[page] = 1
    return result


def _check(collection: Collection, folder: Path) -> None:
    pages = collection.images.keys() | collection.texts.keys()
    for kind in ("images", "texts"):
        part = getattr(collection, kind).keys()
        if part and part != pages:
            missing = min(pages - part)
            raise CollectionError(f"{folder}: page {missing!r} is not among the {kind}; others are")
    if not pages or not collection.queries:
        raise CollectionError(
            f"{folder}: {len(pages)} pages with an image or a text and "
            f"{len(collection.queries)} queries; at least one of each is needed"
        )
    for query, relevant in collection.qrels.items():
        if query not in collection.queries:
            raise CollectionError(f"{folder}/qrels: no query {query!r}")
        unknown = relevant.keys() - pages
        if unknown:
            raise CollectionError(f"{folder}/qrels: no page {min(unknown)!r}")
    unanswered = [
        query
        for query in collection.queries
        if not any(score > 0 for score in collection.qrels.get(query, {}).values())
    ]
    if unanswered:
        raise CollectionError(
            f"{folder}: {len(unanswered)} queries have no relevant page, {unanswered[0]!r} first; "
            "leave them out"
        )


def _value(row: Row, names: tuple[str, ...], table: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise CollectionError(f"{table}: a row has {', '.join(row)}; {' or '.join(names)} is needed")


def _image(value: Any, folder: Path) -> Image:
    if isinstance(value, dict):
        if value.get("bytes") is not None:
            return {"bytes": value["bytes"], "path": None}
        value = value.get("path")
    path = folder / str(value)
    if not path.is_file():
        raise CollectionError(f"no picture {path}")
    return {"bytes": None, "path": str(path)}


def _files(folder: Path, name: str) -> list[Path]:
    single = [folder / f"{name}.jsonl", folder / f"{name}.parquet"]
    found = [path for path in single if path.is_file()]
    return found or sorted((folder / name).glob("*.parquet"))


def _rows(folder: Path, name: str) -> Iterator[Row]:
    files = _files(folder, name)
    if not files:
        raise CollectionError(
            f"{folder}: no {name}.jsonl, {name}.parquet or {name}/*.parquet; see collection.py"
        )
    for path in files:
        if path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines if line.strip())
        else:
            from pyarrow import parquet

            for batch in parquet.ParquetFile(path).iter_batches(batch_size=64):
                yield from batch.to_pylist()
