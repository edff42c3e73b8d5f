"""Search in your own files: pictures, PDFs page by page and texts, in a database in a folder.

    with Index("my-index", Embedder("model.gguf", "mmproj.gguf")) as index:
        report = index.add(["scans", "notes.txt"])
        hits = index.search("revenue by region")

Needs ``pip install 'jmm[search]'``.
"""

from jmm.search.index import Hit, Index, Report
from jmm.search.packages import MissingPackageError
from jmm.search.sheet import contact_sheet

__all__ = ["Hit", "Index", "MissingPackageError", "Report", "contact_sheet"]
