"""Where a number stopped being finite, on graphs written by hand."""

from __future__ import annotations

import math

from jmm.doctor.graph import (
    MERGER,
    TEXT,
    VISION,
    Node,
    Place,
    Source,
    find_fault,
    find_peaks,
    places,
)


def node(
    name: str,
    operation: str = "MUL_MAT",
    weights: str = "",
    reads: tuple[int, ...] = (),
    *,
    vision: bool = False,
    n_nan: int = 0,
    n_inf: int = 0,
    n_minus_inf: int = 0,
    peak: float = 1.0,
) -> Node:
    sources = [Source(weights, "f32", -1)] if weights else []
    sources += [Source(f"node {index}", "f32", index) for index in reads]
    return Node(vision, name, operation, "f32", 8, n_nan, n_inf, n_minus_inf, peak, tuple(sources))


def test_a_layer_is_told_by_weights_then_names_then_sources() -> None:
    nodes = [
        node("inp_embd", "GET_ROWS", "token_embd.weight"),
        node("norm-0", "RMS_NORM", reads=(0,)),
        node("node_3", "MUL_MAT", "blk.0.attn_q.weight", reads=(1,)),
        node("node_4", "ROPE", reads=(2,)),
        node("cache_k_l1 (view)", "SET_ROWS", reads=(3,)),
        node("Qcur-11 (reshaped)", "ROPE", reads=(3,)),
        node("result_norm", "MUL", "output_norm.weight", reads=(5,)),
    ]
    layers = [None, 0, 0, 0, 0, 11, None]
    assert places(nodes) == [Place(TEXT, layer) for layer in layers]


def test_the_merger_is_a_part_of_its_own() -> None:
    nodes = [
        node("layer_out-3", "ADD", reads=(), vision=True),
        node("node_1", "MUL", "v.post_ln.weight", reads=(0,), vision=True),
        node("node_2", "MUL_MAT", "mm.0.weight", reads=(1,), vision=True),
        node("node_3", "GELU_ERF", reads=(2,), vision=True),
        node("node_4", "MUL_MAT", "v.deepstack.5.fc1.weight", reads=(0,), vision=True),
        node("inp_embd", "NONE"),
    ]
    wanted = [(VISION, 3), (VISION, None), (MERGER, None), (MERGER, None), (MERGER, 5)]
    assert places(nodes) == [*(Place(*place) for place in wanted), Place(TEXT, None)]


def test_the_first_is_named() -> None:
    nodes = [
        node("a-0", "MUL_MAT", "blk.0.ffn_up.weight", peak=3e38),
        node("b-1", "MUL_MAT", "blk.1.ffn_down.weight", reads=(0,), n_nan=1, n_inf=2, peak=0.5),
        node("c-2", "MUL_MAT", "blk.2.ffn_down.weight", reads=(1,), n_nan=8),
    ]
    fault = find_fault(nodes)
    assert fault is not None
    assert (fault.part, fault.layer, fault.operation, fault.node) == (TEXT, 1, "MUL_MAT", "b-1")
    assert fault.weights == ("blk.1.ffn_down.weight",)
    assert (fault.n_nan, fault.n_inf, fault.n_values) == (1, 2, 8)
    assert fault.source_peak == 3e38
    assert find_fault(nodes[:1]) is None


def test_a_mask_is_no_fault_and_an_overflow_below_zero_is() -> None:
    mask = node("attn_inp_kq_mask", "NONE", n_inf=3, n_minus_inf=3)
    cast = node("kq_mask_cnv", "CPY", reads=(0,), n_inf=3, n_minus_inf=3)
    scores = node("kq-0", "ADD", reads=(1,), n_inf=3, n_minus_inf=3)
    assert find_fault([mask, cast, scores]) is None
    spoilt = node("kq-0", "ADD", reads=(1,), n_inf=3, n_minus_inf=3, n_nan=1)
    assert find_fault([mask, cast, spoilt]) is not None
    positive = node("kq-0", "ADD", reads=(1,), n_inf=3, n_minus_inf=2)
    assert find_fault([mask, cast, positive]) is not None
    overflow = node("ffn_down-4", "MUL_MAT", "blk.4.ffn_down.weight", n_inf=1, n_minus_inf=1)
    found = find_fault([mask, cast, overflow])
    assert found is not None
    assert found.layer == 4


def test_peaks_and_what_half_precision_cannot_hold() -> None:
    nodes = [
        node("inp_raw", "NONE", vision=True, peak=9e9),
        node("up-0", "MUL_MAT", "v.blk.0.ffn_up.weight", reads=(0,), vision=True, peak=math.pi),
        node("par-1", "SWIGLU", reads=(1,), vision=True, peak=65505.0),
        node("down-1", "MUL_MAT", "v.blk.1.ffn_down.weight", reads=(2,), vision=True, peak=2.0),
        node("up-2", "MUL_MAT", "v.blk.2.ffn_up.weight", reads=(3,), vision=True, peak=65504.0),
        node("down-2", "MUL_MAT", "v.blk.2.ffn_down.weight", reads=(4,), vision=True, peak=1.0),
    ]
    first, second, third = find_peaks(nodes)
    assert (first.layer, first.peak, first.node, first.product) == (0, math.pi, "up-0", 9e9)
    assert (second.layer, second.peak, second.node) == (1, 65505.0, "par-1")
    assert (second.product, second.product_weights) == (65505.0, "v.blk.1.ffn_down.weight")
    assert (third.layer, third.product) == (2, 65504.0)
    assert [peak.overflows_f16 for peak in (first, second, third)] == [True, True, False]
