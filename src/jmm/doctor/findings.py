"""What an examination says, in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jmm.doctor.graph import F16_MAX, PROJECTOR, Place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from jmm.doctor.graph import Fault, Peak
    from jmm.doctor.run import Run
    from jmm.doctor.weights import BadTensor

# Weights that are made of others when a model is loaded.
_MADE_OF = {"v.patch_embd.weight_flat": ("v.patch_embd.weight", "v.patch_embd.weight.1")}


def of_tensor(tensor: BadTensor) -> str:
    """About weights that are not finite."""
    return (
        f"{tensor.file}: tensor {tensor.name} ({tensor.dtype}) holds "
        f"{_counts(tensor.n_nan, tensor.n_inf, tensor.n_values)}, the first at "
        f"{list(tensor.first)}; download or convert the file again"
    )


def of_run(run: Run, bad_weights: Collection[str]) -> list[str]:
    """About an item that failed.

    Args:
        run: What it gave.
        bad_weights: Names of tensors that are not finite.
    """
    if run.error:
        return [f"{run.item}: {run.error}"]
    if run.fault is None:
        return []
    result = "its vector is finite all the same" if run.is_finite else "its vector is lost"
    return [f"{run.item}: {_of_fault(run.fault, bad_weights)}; {result}"]


def _of_fault(fault: Fault, bad_weights: Collection[str]) -> str:
    place = Place(fault.part, fault.layer)
    if fault.part == PROJECTOR:
        return f"{place}: the hidden states are finite, and the projected token vectors are not"
    where = f"{place}: {fault.operation} {fault.node}"
    if fault.weights:
        where += f" of {', '.join(fault.weights)}"
    gave = f"{where} is the first that gives {_counts(fault.n_nan, fault.n_inf, fault.n_values)}"
    read = [part for name in fault.weights for part in _MADE_OF.get(name, (name,))]
    bad = [name for name in (*read, fault.node) if name in bad_weights]
    if bad:
        return f"{gave}, since {bad[0]} holds such"
    return f"{gave}, from finite values up to {fault.source_peak:.3g}: beyond the range of its type"


def of_peak(peak: Peak) -> str:
    """About values that half precision cannot hold."""
    return (
        f"{Place(peak.part, peak.layer)}: {peak.product_weights} is multiplied with values up to "
        f"{peak.product:.3g}, beyond {F16_MAX:.0f}: finite here, and infinite where software "
        "rounds them to half precision"
    )


def join_peaks(peaks: Iterable[Peak]) -> list[Peak]:
    """The greatest per layer."""
    layers: dict[Place, Peak] = {}
    for peak in peaks:
        place = Place(peak.part, peak.layer)
        old = layers.setdefault(place, peak)
        high = max(old, peak, key=lambda one: one.peak)
        product = max(old, peak, key=lambda one: one.product)
        layers[place] = replace(
            high, product=product.product, product_weights=product.product_weights
        )
    return list(layers.values())


def _counts(n_nan: int, n_inf: int, n_values: int) -> str:
    parts = [f"{n:,} {word}" for n, word in ((n_nan, "NaN"), (n_inf, "infinite")) if n]
    return f"{' and '.join(parts)} of {n_values:,} values"
