"""Which files a repo's names mean; the lists are of the kinds that public GGUF repos have."""

from __future__ import annotations

import pytest

from jmm.errors import InputError, ModelLoadError
from jmm.hub.choice import Wanted, choose, file_type

QUANTS = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-F16.gguf", "README.md", "config.json"]
FOLDERS = [
    "BF16/m-BF16-00001-of-00002.gguf",
    "BF16/m-BF16-00002-of-00002.gguf",
    "m-UD-Q4_K_XL.gguf",
    "m-Q4_K_XL.gguf",
    "imatrix_m.gguf",
    "m.imatrix.gguf",
    "mmproj-BF16.gguf",
    "mmproj-F16.gguf",
    "mmproj-F32.gguf",
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jina-embeddings-v4-text-retrieval-Q4_K_M.gguf", "Q4_K_M"),
        ("Qwen2-VL-2B-Instruct-IQ3_XXS.gguf", "IQ3_XXS"),
        ("smollm2-135m-instruct.q4_1.gguf", "Q4_1"),
        ("model-f16.gguf", "F16"),
        ("a-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("BF16/a-BF16-00001-of-00002.gguf", "BF16"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("mmproj-model-fp16.gguf", "FP16"),
        ("Q8_0/text.gguf", "Q8_0"),
        ("text.gguf", ""),
        ("qwen2.5-vl-3b.gguf", ""),
        ("f160-model.gguf", ""),
    ],
)
def test_file_type(name: str, found: str) -> None:
    assert file_type(name) == found


def chosen(names: list[str], **wanted: object) -> list[str]:
    return choose(names, Wanted(**wanted), "org/m").files


def test_one_model_needs_no_choice() -> None:
    assert chosen(["a.gguf", "README.md"]) == ["a.gguf"]
    assert chosen(["a.gguf", "mmproj-a.gguf"]) == ["mmproj-a.gguf", "a.gguf"]
    assert chosen(["a.gguf", "lora-a.gguf", "a.imatrix.gguf", "imatrix.gguf"]) == ["a.gguf"]


def test_by_file_type() -> None:
    assert chosen(QUANTS, file_type="q4_k_m") == ["m-Q4_K_M.gguf"]
    assert chosen(FOLDERS, file_type="Q4_K_XL", mmproj="mmproj-F32.gguf") == [
        "mmproj-F32.gguf",
        "m-Q4_K_XL.gguf",
    ]
    # the tower of the same type, where there is one
    assert chosen(FOLDERS, file_type="bf16") == ["mmproj-BF16.gguf", *FOLDERS[:2]]


def test_by_name() -> None:
    assert chosen(QUANTS, model="m-F16.gguf") == ["m-F16.gguf"]
    assert chosen(FOLDERS, model=FOLDERS[0], mmproj=False) == FOLDERS[:2]
    assert chosen(
        [*QUANTS, "lora-a.gguf", "head.gguf"],
        model="m-F16.gguf",
        adapters={"a": "lora-a.gguf"},
        projector="head.gguf",
    ) == ["lora-a.gguf", "head.gguf", "m-F16.gguf"]


@pytest.mark.parametrize(
    ("names", "wanted", "match"),
    [
        (QUANTS, {}, r"3 files .* the model: F16, Q4_K_M, Q8_0; .* file_type='F16'"),
        (FOLDERS, {"file_type": "Q4_K_XL"}, r"mmproj-BF16.gguf, .*; .* mmproj='mmproj-BF16.gguf'"),
        (["a-x.gguf", "a-y.gguf"], {}, r"a-x.gguf, a-y.gguf; choose one, as with model='a-x.gguf'"),
        (["x-Q8_0.gguf", "y-Q8_0.gguf"], {"file_type": "Q8_0"}, r"model='x-Q8_0.gguf'"),
        (FOLDERS, {"model": FOLDERS[1], "mmproj": False}, "name its first part"),
    ],
)
def test_several(names: list[str], wanted: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        chosen(names, **wanted)


@pytest.mark.parametrize(
    ("names", "wanted", "match"),
    [
        ([], {}, "has no GGUF file of a model; it has no files"),
        (["README.md", "mmproj.gguf"], {}, "it has README.md, mmproj.gguf"),
        (QUANTS, {"file_type": "Q2_K"}, "no model of file_type 'Q2_K'; it has F16, Q4_K_M, Q8_0"),
        (QUANTS, {"model": "x.gguf"}, r"no file x.gguf; it has README.md, config.json, m-F16"),
        (FOLDERS[::2], {"file_type": "bf16"}, "no file BF16/m-BF16-00002-of-00002.gguf, a part"),
        ([f"{i}.txt" for i in range(25)], {}, "and 5 more"),
    ],
)
def test_none(names: list[str], wanted: dict[str, object], match: str) -> None:
    with pytest.raises(ModelLoadError, match=match):
        chosen(names, **wanted)
