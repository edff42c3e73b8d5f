"""What a caller may pass, and what is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import numpy as np
import pytest

from jmm.arguments import (
    Options,
    check_patches,
    count,
    listed,
    path,
    split_patches,
    text,
    whole,
)
from jmm.errors import InputError

N_ELEM = 1176
PATCHES = np.random.default_rng(0).random((24, N_ELEM), dtype=np.float32)
GRID = [1, 4, 6]


def options(**changed: object) -> Options:
    plain = {
        "truncate_dim": None,
        "normalize": True,
        "batch_size": None,
        "on_error": "raise",
        "show_progress": None,
    }
    return Options(**(plain | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("on_error", ["skip", "", None, True, []])
def test_on_error_is_one_of_two(on_error: object) -> None:
    for legal in ("raise", "nan"):
        assert options(on_error=legal).on_error == legal
    message = f"on_error is {on_error!r}; allowed are 'raise' and 'nan'"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        options(on_error=on_error)


@pytest.mark.parametrize("batch_size", [0, -1, 1.0, True, "8"])
def test_batch_size_is_a_count(batch_size: object) -> None:
    assert options(batch_size=np.int64(8)).batch_size == 8
    with pytest.raises(InputError, match=f"^batch_size is {batch_size!r};"):
        options(batch_size=batch_size)


@pytest.mark.parametrize("name", ["normalize", "show_progress"])
@pytest.mark.parametrize("value", ["no", "", 0, 1, 0.0, [], np.ones(2)])
def test_flags(name: str, value: object) -> None:
    assert options(**{name: np.bool_(False)}) is not None
    with pytest.raises(InputError, match=f"^{name} is .*; True or False is needed$"):
        options(**{name: value})


@pytest.mark.parametrize("value", [None, "no", "all", 0, 1, [], np.ones(2), np.bool_(True)])
def test_multi_vector_is_one_of_three(value: object) -> None:
    for legal in (True, False, "both"):
        assert options(multi_vector=legal).multi_vector == legal
    with pytest.raises(InputError, match=r"; allowed are True, False and 'both'$"):
        options(multi_vector=value)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2"])
def test_pool_factor_is_a_count(value: object) -> None:
    assert options(pool_factor=2, multi_vector=True).pool_factor == 2
    with pytest.raises(InputError, match=f"^pool_factor is {value!r};"):
        options(pool_factor=value, multi_vector=True)
    for wrong in ({}, {"multi_vector": True, "normalize": False}):
        with pytest.raises(InputError, match=r"^pool_factor "):
            options(pool_factor=2, **wrong)


@pytest.mark.parametrize("value", [1.0, 1.5, "1", None, True, False, np.float32(1), np.bool_(True)])
def test_whole_refuses_other_types(value: object) -> None:
    with pytest.raises(InputError, match=r"n_ctx is .*; a whole number is needed"):
        whole("n_ctx", value, 0)


@pytest.mark.parametrize("value", [0, 11, -1, 2**31, 2**63, 2**64, 10**30])
def test_whole_refuses_what_is_out_of_limits(value: int) -> None:
    with pytest.raises(InputError, match=f"^n_ctx is {value}; 1 to 10 are allowed$"):
        whole("n_ctx", value, 1, 10)


@pytest.mark.parametrize("value", [1, 10, np.int8(7), np.uint64(7)])
def test_whole_gives_an_int(value: int) -> None:
    got = whole("n_ctx", value, 1, 10)
    assert type(got) is int
    assert got == int(value)


def test_whole_names_great_limits_readably() -> None:
    with pytest.raises(InputError, match="1 to 2,147,483,647 are allowed"):
        whole("n_batch", 2**31, 1)


def test_count() -> None:
    assert count("n_batch", None) == 0
    assert count("n_batch", 1) == 1
    with pytest.raises(InputError, match="n_batch is 0; 1 to 5 are allowed"):
        count("n_batch", 0, 5)
    with pytest.raises(InputError, match="n_batch is 6; 1 to 5 are allowed"):
        count("n_batch", 6, 5)


def test_listed_takes_any_iterable_once() -> None:
    def letters() -> Iterator[str]:
        yield from "ab"

    assert listed(letters(), "texts") == ["a", "b"]
    assert listed(("a", "b"), "texts") == ["a", "b"]
    assert listed(np.array(["a", "b"]), "texts") == ["a", "b"]
    assert listed([], "texts") == []


def test_listed_lets_an_error_of_the_caller_pass() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        listed(broken(), "texts")


@pytest.mark.parametrize(
    "items",
    [{"a": 1}, {}, None, 5, b"abc", b"", bytearray(b"abc"), memoryview(b"abc"), np.array("abc")],
    ids=lambda value: type(value).__name__,
)
def test_listed_refuses(items: object) -> None:
    name = type(items).__name__
    with pytest.raises(InputError, match=f"^{name} given; one of the texts or an iterable of them"):
        listed(items, "texts")


@pytest.mark.parametrize("value", ["", "a", "ü€😀", "a\0b", "<__media__>"])
def test_text_as_it_is(value: str) -> None:
    assert text(value) is value


@pytest.mark.parametrize("value", [b"a", None, 1, ["a"], np.array("a")])
def test_text_is_a_str(value: object) -> None:
    with pytest.raises(InputError, match=f"a text is a str, and this is {type(value).__name__}"):
        text(value)


@pytest.mark.parametrize(
    ("value", "shown", "position"),
    [("\ud800", r"'\ud800'", 0), ("ab\udfff", r"'\udfff'", 2), ("\ud83d\ude00", r"'\ud83d'", 0)],
)
def test_text_without_lone_surrogates(value: str, shown: str, position: int) -> None:
    with pytest.raises(InputError) as caught:
        text(value)
    assert f"{shown} at position {position};" in str(caught.value)
    assert "errors='replace'" in str(caught.value)


def test_path(tmp_path: Path) -> None:
    for value in (tmp_path, str(tmp_path), str(tmp_path).encode(), PurePath(tmp_path)):
        assert path("target", value) == tmp_path
    odd = "a\udcffb"  # a byte that is no UTF-8, as os.listdir gives it
    assert path("target", odd) == Path(odd)


@pytest.mark.parametrize("value", [None, 3, ["a"], open, "a\0b", b"\0", "\ud800"], ids=repr)
def test_path_refuses(value: object) -> None:
    with pytest.raises(InputError, match=r"^target is .*; the path of a file is needed$"):
        path("target", value)


def test_one_grid_of_one_axis_is_one_picture() -> None:
    ((patches, grid),), one = split_patches(PATCHES, GRID, N_ELEM)
    assert one
    np.testing.assert_array_equal(patches, PATCHES)
    assert grid.tolist() == GRID
    _, one = split_patches(PATCHES, [GRID], N_ELEM)
    assert not one


def test_pictures_are_cut_apart_in_order() -> None:
    items, one = split_patches(PATCHES, [[1, 2, 4], [1, 2, 2], [1, 6, 2]], N_ELEM)
    assert not one
    assert [grid.tolist() for _, grid in items] == [[1, 2, 4], [1, 2, 2], [1, 6, 2]]
    for (patches, _), (start, stop) in zip(items, [(0, 8), (8, 12), (12, 24)], strict=True):
        np.testing.assert_array_equal(patches, PATCHES[start:stop])


@pytest.mark.parametrize("grid", [[], np.zeros((0, 3), int), np.zeros((0, 3), np.uint8)])
def test_no_pictures(grid: object) -> None:
    assert split_patches(PATCHES[:0], grid, N_ELEM) == ([], False)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4"])
def test_grids_of_any_whole_type(dtype: str) -> None:
    ((_, grid),), _ = split_patches(PATCHES, np.array([GRID], dtype), N_ELEM)
    assert grid.dtype == np.int64
    assert grid.tolist() == GRID


def test_sizes_beyond_the_grids_own_type() -> None:
    patches = np.zeros((100 * 100, 1), np.float32)
    ((rows, _),), _ = split_patches(patches, np.array([[1, 100, 100]], np.uint8), 1)
    assert len(rows) == 10_000


@pytest.mark.parametrize(
    "patches",
    [
        PATCHES.astype(np.float64),
        PATCHES.astype(np.float16),
        PATCHES.astype(">f4"),
        PATCHES.astype(object),
        (PATCHES * 255).astype(np.uint8),
        PATCHES.tolist(),
        [],
        None,
        "abc",
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_patches_are_float32(patches: object) -> None:
    with pytest.raises(InputError, match=r"^patches have dtype \S+; float32 is needed$"):
        split_patches(patches, GRID, N_ELEM)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shape", [(24,), (24, N_ELEM - 1), (24, N_ELEM + 1), (1, 24, N_ELEM), (24, 0), ()]
)
def test_patches_have_two_axes(shape: tuple[int, ...]) -> None:
    message = re.escape(f"patches have shape {list(shape)}; [n, {N_ELEM}] is needed")
    with pytest.raises(InputError, match=f"^{message}$"):
        split_patches(np.zeros(shape, np.float32), GRID, N_ELEM)


@pytest.mark.parametrize("patches", [[[1.0], [1.0, 2.0]], [object(), [1]]])
def test_patches_that_are_no_array(patches: object) -> None:
    with pytest.raises(InputError, match=r"^patches "):
        split_patches(patches, GRID, N_ELEM)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "grid",
    [
        [1, 4],
        [1, 4, 6, 1],
        [[1, 4]],
        [[GRID]],
        [1.0, 4.0, 6.0],
        [True, True, True],
        np.array(GRID, object),
        [1, 4, 10**30],
        [[1, 4, 6], [1, 4]],
        "abc",
        None,
        {"t": 1},
        5,
    ],
    ids=repr,
)
def test_grid_is_whole_numbers_in_threes(grid: object) -> None:
    with pytest.raises(InputError, match=r"^grid_thw "):
        split_patches(PATCHES, grid, N_ELEM)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "asked"),
    [
        ([1, 4, 4], 16),
        ([1, 4, 8], 32),
        ([], 0),
        ([0, 4, 6], 0),
        ([1, -4, 6], -24),
        ([[1, 4, 6], [1, 0, 0]], 24),
        ([[1, 4, 8], [1, -2, 4]], 24),
        # products that are 0 or 24 modulo 2**64
        ([1, 2**32, 2**32], 2**64),
        ([1, 2**62, 2**62], 2**124),
        ([2**61 + 1, 4, 6], 24 * 2**61 + 24),
        (np.array([2**63, 2, 1], np.uint64), 2**64),
        (np.array([2**64 - 1] * 3, np.uint64), (2**64 - 1) ** 3),
        ([[1, 2, 6], [1, 2**63 - 1, 2], [1, 2, 7]], 12 + 2**64 - 2 + 14),
    ],
    ids=str,
)
def test_grid_and_patches_disagree(grid: object, asked: int) -> None:
    with pytest.raises(InputError, match=f"^there are 24 patches, and grid_thw asks for {asked};"):
        split_patches(PATCHES, grid, N_ELEM)  # type: ignore[arg-type]


def test_a_long_list_of_grids_is_not_told_in_full() -> None:
    with pytest.raises(InputError) as caught:
        split_patches(PATCHES, [[1, 2, 2]] * 1000, N_ELEM)
    assert str(caught.value).endswith("[1, 2, 2]]...")
    assert len(str(caught.value)) < 250


def test_patches_of_any_layout() -> None:
    padded = np.zeros((24, 2 * N_ELEM), np.float32)
    padded[:, ::2] = PATCHES
    backward = np.ascontiguousarray(PATCHES[::-1, ::-1])[::-1, ::-1]
    unaligned = np.frombuffer(b"x" + PATCHES.tobytes(), np.uint8)[1:].view(np.float32)
    frozen = PATCHES.copy()
    frozen.flags.writeable = False
    layouts = [
        np.asfortranarray(PATCHES),
        padded[:, ::2],
        backward,
        unaligned.reshape(PATCHES.shape),
        frozen,
    ]
    for layout in layouts:
        ((patches, grid),), _ = split_patches(layout, GRID, N_ELEM)
        checked = check_patches((patches, grid))
        assert checked.flags.c_contiguous
        np.testing.assert_array_equal(checked, PATCHES)


def test_the_callers_array_is_not_copied() -> None:
    ((patches, grid),), _ = split_patches(PATCHES, GRID, N_ELEM)
    assert np.shares_memory(check_patches((patches, grid)), PATCHES)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_patches_are_finite(value: float) -> None:
    patches = PATCHES.copy()
    patches[7, 11] = value
    with pytest.raises(InputError, match=rf"^patches\[7, 11\] is {value}; finite is needed$"):
        check_patches((patches, np.array(GRID)))


def test_greatest_finite_patches_pass() -> None:
    patches = np.full_like(PATCHES, np.finfo(np.float32).max)
    check_patches((patches, np.array(GRID)))


@pytest.mark.parametrize("frames", [2, -1])
def test_a_still_picture_has_one_frame(frames: int) -> None:
    with pytest.raises(InputError, match=f"the grid has t={frames}; still pictures have 1"):
        check_patches((PATCHES, np.array([frames, 2, 6])))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(PATCHES.copy())
    ((patches, grid),), one = split_patches(tensor, torch.tensor([GRID]), N_ELEM)
    assert not one
    assert grid.tolist() == GRID
    np.testing.assert_array_equal(patches, PATCHES)
    for refused in (tensor.bfloat16(), tensor.clone().requires_grad_(), tensor.to("meta")):
        with pytest.raises(InputError, match=r"^patches cannot be read as an array: "):
            split_patches(refused, GRID, N_ELEM)
