"""Where pixel limits and statistics come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from jmm.errors import InputError
from jmm.preprocess import CLIP_MEAN, CLIP_STD, preprocess
from jmm.processor import Processor
from jmm.profiles import GME_QWEN2_VL, JINA_V4, QWEN_VL

FILE = {
    "clip.vision.image_min_pixels": 4000,
    "clip.vision.image_max_pixels": 50_000,
    "clip.vision.patch_size": 14,
    "clip.vision.image_mean": [0.5, 0.25, 0.125],
    "clip.vision.image_std": [0.5, 1.0, 2.0],
}


def limits(processor: Processor) -> tuple[int, int]:
    return processor.min_pixels, processor.max_pixels


def test_defaults_are_those_of_the_reference() -> None:
    processor = Processor.of({}, QWEN_VL, None, None)
    assert limits(processor) == (56 * 56, 28 * 28 * 1280)
    assert processor.patch_size == 14
    assert processor.image_mean == CLIP_MEAN == (0.48145466, 0.4578275, 0.40821073)
    assert processor.image_std == CLIP_STD == (0.26862954, 0.26130258, 0.27577711)
    assert processor.reason.count("default of the Qwen2-VL processor") == 2


def test_an_argument_wins_over_the_profile_and_that_over_the_file() -> None:
    assert limits(Processor.of(FILE, QWEN_VL, None, None)) == (4000, 50_000)
    assert limits(Processor.of(FILE, JINA_V4, None, None)) == (3136, 602_112)
    assert limits(Processor.of(FILE, JINA_V4, 5000, None)) == (5000, 602_112)
    assert limits(Processor.of(FILE, QWEN_VL, None, 6000)) == (4000, 6000)


def test_the_reason_names_each_source() -> None:
    profile = replace(QWEN_VL, min_pixels=3200)
    reason = Processor.of(FILE, profile, None, None).reason
    assert reason == "min_pixels: profile qwen2.5-vl; max_pixels: mmproj file"
    reason = Processor.of({}, QWEN_VL, 4000, None).reason
    assert reason == "min_pixels: argument; max_pixels: default of the Qwen2-VL processor"


@pytest.mark.parametrize("name", ["min_pixels", "max_pixels"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "5000", 2**31, 2**64])
def test_limits_are_whole_numbers(name: str, value: object) -> None:
    given = {"min_pixels": None, "max_pixels": None, name: value}
    with pytest.raises(InputError, match=f"^{name} is {value!r}; "):
        Processor.of({}, QWEN_VL, **given)  # type: ignore[arg-type]


def test_limits_may_meet_but_not_cross() -> None:
    assert limits(Processor.of({}, QWEN_VL, 5000, 5000)) == (5000, 5000)
    with pytest.raises(InputError, match=r"^min_pixels=5001 is above max_pixels=5000$"):
        Processor.of({}, QWEN_VL, 5001, 5000)
    with pytest.raises(InputError, match=r"^min_pixels=3136 is above max_pixels=3000$"):
        Processor.of({}, QWEN_VL, None, 3000)


def test_statistics_in_float32_give_the_same_patches() -> None:
    stored = {
        f"clip.vision.image_{name}": [float(np.float32(value)) for value in values]
        for name, values in (("mean", CLIP_MEAN), ("std", CLIP_STD))
    }
    assert tuple(stored["clip.vision.image_mean"]) != CLIP_MEAN
    picture = Image.fromarray(np.arange(56 * 56 * 3).reshape(56, 56, 3).astype(np.uint8))
    from_file, _, _ = Processor.of(stored, QWEN_VL, None, None)(picture)
    from_defaults, _, _ = Processor.of({}, QWEN_VL, None, None)(picture)
    np.testing.assert_array_equal(from_file, from_defaults)


def test_pictures_are_cut_with_these_settings() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    patches, grid_h, grid_w = Processor.of(FILE, QWEN_VL, None, None)(picture)
    wanted, grid = preprocess(
        picture,
        min_pixels=4000,
        max_pixels=50_000,
        patch_size=14,
        image_mean=(0.5, 0.25, 0.125),
        image_std=(0.5, 1.0, 2.0),
    )
    assert (1, grid_h, grid_w) == tuple(grid)
    assert grid_h * grid_w * 14 * 14 <= 50_000
    np.testing.assert_array_equal(patches, wanted)


def test_a_resize_before_the_others() -> None:
    picture = Image.fromarray(np.arange(2000 * 30 * 3, dtype=np.uint8).reshape(30, 2000, 3))
    processor = Processor.of({}, GME_QWEN2_VL, None, None)
    between = picture.resize((1988, 28), Image.Resampling.BICUBIC)
    limits = {"min_pixels": 256 * 784, "max_pixels": 1280 * 784}
    wanted, (_, grid_h, grid_w) = preprocess(between, **limits)
    patches, *grid = processor(picture)
    np.testing.assert_array_equal(patches, wanted)
    assert grid == [grid_h, grid_w]
    assert processor.n_tokens(picture) == grid_h * grid_w // 4
    assert not np.array_equal(patches, preprocess(picture, **limits)[0])
