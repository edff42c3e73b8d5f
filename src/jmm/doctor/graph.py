"""Where in a model a number stopped being finite, from what each node of its graphs gave.

A graph is a list of nodes in the order of computation; each names its sources, which stand before
it. Names of weights and nodes tell part and layer: ``v.blk.3.ffn_down.weight``, ``ffn_out-3``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEXT, VISION, MERGER, PROJECTOR = "text model", "vision tower", "merger", "projector"

Record: TypeAlias = (
    "tuple[bool, str, str, str, int, int, int, int, float, list[tuple[str, str, int]]]"
)

F16_MAX = 65504.0
"""The greatest finite number in half precision."""

_LEAF = "NONE"
_PRODUCTS = ("MUL_MAT", "MUL_MAT_ID")
_MERGER_WEIGHTS = ("mm.", "v.deepstack.")
_LAYER_OF_WEIGHT = re.compile(r"\b(?:blk|deepstack)\.(\d+)\.")
_LAYER_OF_NODE = re.compile(r"-(\d+)(?: \(.*\))?$")


class Source(NamedTuple):
    """What a node reads; ``node`` is its place in the list, -1 for weights."""

    name: str
    dtype: str
    node: int


@dataclass(frozen=True)
class Node:
    """What one node gave.

    Attributes:
        vision: Whether it belongs to the vision tower's graph.
        name: As llama.cpp calls it.
        operation: Of ggml; "NONE" for an input.
        dtype: Type of its values.
        n_values: How many there are.
        n_nan: Of them NaN.
        n_inf: Of them infinite.
        n_minus_inf: Of them infinite below zero.
        peak: Greatest finite magnitude.
        sources: What it reads.
    """

    vision: bool
    name: str
    operation: str
    dtype: str
    n_values: int
    n_nan: int
    n_inf: int
    n_minus_inf: int
    peak: float
    sources: tuple[Source, ...] = ()

    @property
    def weights(self) -> list[str]:
        """Names of the weights that it reads."""
        return [source.name for source in self.sources if source.node < 0]


class Place(NamedTuple):
    """Which part of the model, and which of its layers; None outside of them."""

    part: str
    layer: int | None

    def __str__(self) -> str:
        return self.part if self.layer is None else f"{self.part}, layer {self.layer}"


@dataclass(frozen=True)
class Fault:
    """The first node whose values are not all finite, though what it reads is.

    Attributes:
        part: "text model", "vision tower", "merger" or "projector".
        layer: Counted from 0; None outside of the layers.
        operation: Of ggml.
        node: Its name.
        weights: Names of the weights that it reads.
        n_nan: Its values that are NaN.
        n_inf: Its values that are infinite.
        n_values: All of them.
        source_peak: Greatest magnitude in what it reads beside weights.
    """

    part: str
    layer: int | None
    operation: str
    node: str
    weights: tuple[str, ...]
    n_nan: int
    n_inf: int
    n_values: int
    source_peak: float


@dataclass(frozen=True)
class Peak:
    """The greatest magnitude in one layer.

    Attributes:
        part: As of `Fault`.
        layer: As of `Fault`.
        peak: Greatest finite magnitude.
        node: Which gave it.
        product: Greatest magnitude that a matrix product reads beside its weights: what is
            rounded where products are computed in half precision.
        product_weights: Name of that product's weights; empty without one.
    """

    part: str
    layer: int | None
    peak: float
    node: str
    product: float = 0.0
    product_weights: str = ""

    @property
    def overflows_f16(self) -> bool:
        """Whether a product that rounds what it reads to half precision would overflow."""
        return self.product > F16_MAX


def nodes_of(records: Sequence[Record]) -> list[Node]:
    """Nodes from what `_core.Engine.take_nodes` returns."""
    return [
        Node(*record[:-1], tuple(Source(*source) for source in record[-1])) for record in records
    ]


def places(nodes: Sequence[Node]) -> list[Place]:
    """Where each node belongs."""
    found: list[Place] = []
    for node in nodes:
        before = [found[source.node] for source in node.sources if source.node >= 0]
        found.append(_place(node, before))
    return found


def _place(node: Node, before: Sequence[Place]) -> Place:
    weights = node.weights
    part = TEXT
    if node.vision:
        is_merger = any(name.startswith(_MERGER_WEIGHTS) for name in weights)
        inherits = not weights and any(place.part == MERGER for place in before)
        part = MERGER if is_merger or inherits else VISION
    for name in weights:
        match = _LAYER_OF_WEIGHT.search(name)
        return Place(part, int(match[1]) if match else None)
    match = _LAYER_OF_NODE.search(node.name)
    if match:
        return Place(part, int(match[1]))
    layers = [place.layer for place in before if place.part == part and place.layer is not None]
    return Place(part, max(layers, default=None))


def find_fault(nodes: Sequence[Node]) -> Fault | None:
    """The first node in the order of computation that is not finite; None if all are.

    Infinity below zero that an attention mask has brought in is no fault.
    """
    masked = set(_masked(nodes))
    for index, node in enumerate(nodes):
        if index in masked or not node.n_nan + node.n_inf:
            continue
        part, layer = places(nodes[: index + 1])[index]
        peaks = [nodes[source.node].peak for source in node.sources if source.node >= 0]
        return Fault(
            part,
            layer,
            node.operation,
            node.name,
            tuple(node.weights),
            node.n_nan,
            node.n_inf,
            node.n_values,
            max(peaks, default=0.0),
        )
    return None


def _masked(nodes: Sequence[Node]) -> Iterator[int]:
    """Inputs that hide something behind infinity below zero, and what is made of them."""
    found: set[int] = set()
    for index, node in enumerate(nodes):
        is_mask = node.n_minus_inf > 0 and node.n_inf == node.n_minus_inf and not node.n_nan
        comes_from_one = any(source.node in found for source in node.sources)
        if is_mask and (node.operation == _LEAF or comes_from_one):
            found.add(index)
            yield index


def find_peaks(nodes: Sequence[Node]) -> list[Peak]:
    """The greatest magnitudes of each layer, in the order of computation."""
    layers: dict[Place, Peak] = {}
    for node, place in zip(nodes, places(nodes), strict=True):
        if node.operation == _LEAF:
            continue
        old = layers.get(place, Peak(*place, 0.0, node.name))
        product, weights = old.product, old.product_weights
        if node.operation in _PRODUCTS and node.weights:
            read = max((nodes[s.node].peak for s in node.sources if s.node >= 0), default=0.0)
            if read > product:
                product, weights = read, node.weights[0]
        peak, name = max((old.peak, old.node), (node.peak, node.name), key=lambda pair: pair[0])
        layers[place] = Peak(*place, peak, name, product, weights)
    return list(layers.values())
