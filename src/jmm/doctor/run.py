"""One item through a model whose engine keeps what every node gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jmm.doctor import graph
from jmm.doctor.graph import Fault, Peak
from jmm.errors import JmmError, NonFiniteError

if TYPE_CHECKING:
    from jmm.embedder import Embedder


@dataclass(frozen=True)
class Run:
    """What one item gave.

    Attributes:
        item: What it was, in words.
        kind: "document" or "image".
        n_tokens: Its tokens; None if it failed.
        is_finite: Whether its vectors are.
        fault: Where a number first stopped being finite; None if all are.
        peaks: The greatest magnitudes of each layer, in the order of computation.
        error: What went wrong otherwise; empty if nothing did.
    """

    item: str
    kind: Literal["document", "image"]
    n_tokens: int | None
    is_finite: bool
    fault: Fault | None
    peaks: list[Peak]
    error: str = ""


def run(
    embedder: Embedder, engine: Any, item: Any, name: str, kind: Literal["document", "image"]
) -> Run:
    """Runs one item.

    Args:
        embedder: Whose `engine` records its nodes.
        engine: Of the embedder.
        item: What `Embedder.trace` takes.
        name: What to call it.
        kind: What it is.
    """
    n_tokens, is_finite, error = None, False, ""
    engine.take_nodes()
    multi_vector = embedder.multi_vector_dim is not None
    try:
        n_tokens = len(embedder.trace(item, kind=kind, multi_vector=multi_vector).ids)
        is_finite = True
    except NonFiniteError:
        pass
    except JmmError as failure:
        error = failure.message
    nodes = graph.nodes_of(engine.take_nodes()) if engine.is_open else []
    fault = graph.find_fault(nodes)
    if fault is None and not is_finite and not error:
        fault = Fault(graph.PROJECTOR, None, "MUL_MAT", "token vectors", (), 0, 0, 0, 0.0)
    return Run(name, kind, n_tokens, is_finite, fault, graph.find_peaks(nodes), error)
