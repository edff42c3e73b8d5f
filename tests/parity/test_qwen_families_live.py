"""Fresh weights and pictures: Qwen3-VL, GME and ColQwen2 against transformers in fp32, live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import token_texts
from jmm import Embedder
from support import family_calls, golden, qwen3, tiny
from support.family_calls import MODEL
from support.sequences import Grid, cosine, n_merged, unit_mean

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
families = pytest.importorskip("support.families")

SEED = 200
COSINE = 0.999999
COMPONENT = 5e-6
VIT = 2e-5
# Height and width in pixels; the processor resizes all but the first.
SIZES = ((64, 96), (70, 100), (20, 20), (331, 257), (40, 900), (600, 420))


def processed(picture: np.ndarray, **settings: Any) -> tuple[np.ndarray, Grid]:
    """The picture as transformers' processor cuts it."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    out = Qwen2VLImageProcessorPil(**settings)(images=[picture], return_tensors="np")
    _, height, width = (int(n) for n in out["image_grid_thw"][0])
    return out["pixel_values"], (height, width)


def fetched(picture: np.ndarray) -> np.ndarray:
    """The picture as ``fetch_image`` of gme_inference.py hands it to the processor."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = smart_resize(*picture.shape[:2], 28, 4 * 28 * 28, 16384 * 28 * 28)
    return np.asarray(Image.fromarray(picture).resize((width, height)))


class Qwen3:
    """One fresh model, loaded by both."""

    def __init__(self, folder: Path) -> None:
        from support import qwen3_reference

        weights = qwen3.weights(SEED)
        self.embedder = Embedder(
            qwen3.write_text(weights, folder / "text.gguf"),
            qwen3.write_mmproj(weights, folder / "mmproj.gguf"),
            profile="qwen3-vl-embedding",
            n_threads=1,
        )
        self.reference = qwen3_reference.Reference(weights)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Qwen3]:
    found = Qwen3(tmp_path_factory.mktemp("qwen3"))
    yield found
    found.embedder.close()


@pytest.mark.parametrize("size", SIZES)
def test_qwen3_pictures(size: tuple[int, int], pair: Qwen3) -> None:
    picture = tiny.pixels(*size, seed=SEED)
    patches, grid = processed(
        picture,
        patch_size=qwen3.PATCH,
        image_mean=qwen3.MEAN,
        image_std=qwen3.STD,
        size={"shortest_edge": 4 * 32 * 32, "longest_edge": 1800 * 32 * 32},
    )
    tokens = pair.embedder.encode_vision(picture)
    assert tokens.grid == grid
    assert np.abs(tokens.values - pair.reference.vit(patches, [grid])).max() <= VIT
    ids = families.ids_of(families.PROMPTS["qwen3-vl-embedding"]["picture"], n_merged(grid))
    right = unit_mean(pair.reference.hidden(ids, patches, [grid]), len(ids) - 1)
    assert np.abs(pair.embedder.encode_images(picture) - right).max() <= COMPONENT


def test_qwen3_texts(pair: Qwen3) -> None:
    for text in token_texts.mixtures(seed=SEED, count=20):
        trace = pair.embedder.trace(text, kind="query")
        hidden = pair.reference.hidden(np.array(trace.ids))
        right = unit_mean(hidden, len(hidden) - 1)
        assert np.abs(pair.embedder.encode_query(text) - right).max() <= COMPONENT


def test_gme_pictures(tiny_files: Any) -> None:
    net = families.qwen2_net().net.model
    with Embedder(*tiny_files(MODEL.name), profile="gme-qwen2-vl", n_threads=1) as embedder:
        for size in ((448, 448), (300, 200), (600, 420), (1500, 900)):
            picture = tiny.pixels(*size, seed=SEED)
            limits = {"shortest_edge": 256 * 28 * 28, "longest_edge": 1280 * 28 * 28}
            patches, grid = processed(fetched(picture), size=limits)
            ids = families.ids_of(families.PROMPTS["gme-qwen2-vl"]["picture"], n_merged(grid))
            hidden = families.hidden_without_grid(net, ids, patches, grid)
            right = unit_mean(hidden, len(hidden) - 1)
            assert cosine(embedder.encode_images(picture), right) >= COSINE


@pytest.fixture(scope="module")
def colqwen() -> tuple[Any, Any]:
    """transformers' ColQwen2 and its processor."""
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    from support.reference import config, tokenizer

    settings = transformers.ColQwen2Config(
        vlm_config=config(MODEL).to_dict(), embedding_dim=family_calls.COLQWEN_DIM
    )
    net = transformers.ColQwen2ForRetrieval(settings).eval()
    weight, bias = family_calls.colqwen_projector("colqwen2-hf")
    state = {
        name.replace("model.", "vlm.", 1): torch.from_numpy(value.copy())
        for name, value in golden.weights(MODEL.name).items()
        if name.startswith("model.")
    }
    state["embedding_proj_layer.weight"] = torch.from_numpy(weight)
    state["embedding_proj_layer.bias"] = torch.from_numpy(bias)
    net.load_state_dict(state)
    processor = transformers.ColQwen2Processor(
        Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 602112}),
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer(MODEL, True), pad_token="<|endoftext|>"
        ),
    )
    return net, processor


def test_colqwen2_as_transformers_has_it(
    colqwen: tuple[Any, Any], tiny_files: Any, tmp_path: Path
) -> None:
    net, processor = colqwen
    projector = family_calls.write_projector(tmp_path / "projector.gguf", "colqwen2-hf")
    picture = tiny.pixels(331, 257, seed=SEED)
    with (
        Embedder(
            *tiny_files(MODEL.name), profile="colqwen2-hf", projector=projector, n_threads=1
        ) as embedder,
        torch.inference_mode(),
    ):
        for inputs, found in (
            (
                processor.process_images([picture], return_tensors="pt"),
                embedder.encode_images(picture, multi_vector=True),
            ),
            (
                processor.process_queries([family_calls.TEXT], return_tensors="pt"),
                embedder.encode_query(family_calls.TEXT, multi_vector=True),
            ),
        ):
            right = net(**inputs).embeddings[0].numpy()
            assert found.shape == right.shape
            assert np.abs(found - right).max() <= 2 * COMPONENT
