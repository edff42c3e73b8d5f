"""Every example of a public docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import logging
import pkgutil
from collections.abc import Iterator

import pytest

import jmm

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(jmm.__path__, "jmm.")
    if not any(part.startswith("_") for part in info.name.split("."))
)


def examples(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder().find(importlib.import_module(name), name)
    return [test for test in found if test.examples]


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Puts back what an example sets."""
    before = logging.getLogger("jmm").level
    yield
    jmm.set_log_level("WARNING")
    logging.getLogger("jmm").setLevel(before)


def test_the_finder_sees_the_classes() -> None:
    names = {test.name for test in examples("jmm.embedder")}
    methods = ("encode_images", "encode_patches", "encode_query", "encode_document")
    assert names >= {"jmm.embedder.Embedder"} | {f"jmm.embedder.Embedder.{m}" for m in methods}


# Modules whose examples need an extra.
NEEDS = {
    "jmm.browse.library": ("lancedb", "search"),
    "jmm.integrations.haystack": ("haystack", "haystack"),
    "jmm.integrations.langchain": ("langchain_core", "langchain"),
    "jmm.integrations.llama_index": ("llama_index", "llama-index"),
    "jmm.integrations.mteb": ("mteb", "bench"),
    "jmm.integrations.sentence_transformers": ("sentence_transformers", "sentence-transformers"),
    "jmm.search.index": ("lancedb", "search"),
}


@pytest.mark.parametrize("name", ["jmm", *MODULES])
def test_examples(name: str) -> None:
    if name in NEEDS:
        package, extra = NEEDS[name]
        pytest.importorskip(package, reason=f"needs pip install 'jmm[{extra}]'")
    report: list[str] = []
    for test in examples(name):
        doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
