"""Search in your own files: pictures, PDFs page by page and texts, in a database in a folder.

    with Index("my-index", Embedder("model.gguf", "mmproj.gguf")) as index:
        report = index.add(["scans", "notes.txt"])
        hits = index.search("revenue by region")

Needs ``lancedb``, and ``pypdfium2`` for PDFs.
"""

from jmm.search.failure import StoreError
from jmm.search.index import Index
from jmm.search.results import Hit, Report
from jmm.search.sheet import contact_sheet
from jmm.search.source import MissingPageError, Sources

__all__ = ["Hit", "Index", "MissingPageError", "Report", "Sources", "StoreError", "contact_sheet"]
