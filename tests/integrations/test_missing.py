"""Without its package an adapter says what to install, and the rest needs none of them."""

from __future__ import annotations

import pytest

from subprocess_case import run

ADAPTERS = {
    "haystack": ("haystack", "haystack-ai"),
    "langchain": ("langchain_core", "langchain-core"),
    "llama_index": ("llama_index", "llama-index-core"),
    "mteb": ("mteb", "mteb"),
    "sentence_transformers": ("sentence_transformers", "sentence-transformers"),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_without_its_package(adapter: str) -> None:
    package, name = ADAPTERS[adapter]
    lines = run(
        "sys.modules[words[1]] = None\n"
        "import importlib\n"
        "try:\n"
        "    importlib.import_module(f'jmm.integrations.{words[0]}')\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n",
        adapter,
        package,
    )
    assert lines == [f"jmm.integrations.{adapter} needs {name}: pip install {name}"]


def test_the_rest_imports_none_of_them() -> None:
    packages = [package for package, _ in ADAPTERS.values()]
    lines = run(
        "import jmm.integrations\nprint([name for name in words if name in sys.modules])",
        *packages,
        "ray",
        "torch",
    )
    assert lines == ["[]"]
