"""Hierarchical clustering by Ward's criterion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Merges = list[tuple[float, int, int]]


def ward_clusters(points: npt.NDArray[np.floating[Any]], n_clusters: int) -> npt.NDArray[np.int64]:
    """Cuts points into clusters so that the squared distances within stay small.

    Merges two clusters at a time, those whose union adds the least (J. H. Ward, 1963), found by
    the nearest-neighbour chain (F. Murtagh, 1983), and undoes all merges above the height at
    which at most ``n_clusters`` are left. Clusters and numbers are those of scipy's
    ``fcluster(linkage(points, "ward"), n_clusters, "maxclust") - 1``, unless heights are equal to
    the last bits of a double.

    Args:
        points: ``[n, dim]``, finite, at least one.
        n_clusters: The most that there may be, at least one.

    Returns:
        int64 ``[n]``: each point's cluster, from 0.

    Time grows with n squared times dim; needed are 8 bytes times n squared and a copy of the points
    in double.

    Example:
        >>> ward_clusters(np.array([[0.0], [10.0], [1.0], [11.0], [12.0]]), 2)
        array([0, 1, 0, 1, 1])
    """
    n = len(points)
    if n <= n_clusters:
        return np.arange(n)
    merges = sorted(_merges(_squared_distances(points)), key=lambda merge: merge[0])
    cut = merges[n - n_clusters - 1][0]
    n_kept = sum(height <= cut for height, _, _ in merges)  # equal heights stay together
    return _number(_tree(merges, n), n, n + n_kept)


def _squared_distances(points: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """float64 ``[n, n]``, infinity on the diagonal."""
    wide = points.astype(np.float64)
    wide -= wide.mean(axis=0)  # less to cancel below
    squares = np.einsum("ij,ij->i", wide, wide)
    result = wide @ wide.T
    result *= -2
    result += squares
    result += squares[:, None]
    np.fill_diagonal(result, np.inf)
    return np.asarray(result)


def _merges(distances: npt.NDArray[np.float64]) -> Merges:
    """All ``n - 1`` merges, as height and a point of each side, in the order found.

    A cluster lives in the row and column of one of its points; ``distances`` are overwritten.
    """
    n = len(distances)
    sizes = np.ones(n)
    chain: list[int] = []
    merges: Merges = []
    for _ in range(n - 1):
        if not chain:
            chain.append(int(np.argmax(sizes > 0)))
        while True:
            last = chain[-1]
            near = int(distances[last].argmin())
            if len(chain) > 1 and distances[last, chain[-2]] <= distances[last, near]:
                break  # each is the other's nearest
            chain.append(near)
        gone, kept = sorted((chain.pop(), chain.pop()))
        height = float(distances[gone, kept])
        merges.append((height, gone, kept))
        # Lance and Williams: the union's distances from those of its two parts.
        row = (sizes[gone] + sizes) * distances[gone] + (sizes[kept] + sizes) * distances[kept]
        row -= sizes * height
        row /= sizes[gone] + sizes[kept] + sizes
        row[[gone, kept]] = np.inf
        distances[kept] = distances[:, kept] = row
        distances[:, gone] = np.inf
        sizes[kept] += sizes[gone]
        sizes[gone] = 0
    return merges


def _tree(merges: Merges, n: int) -> list[tuple[int, int]]:
    """The two nodes below each merge; nodes under ``n`` are points, the others merges."""
    parent = list(range(n + len(merges)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    children = []
    for node, (_, one, other) in enumerate(merges, n):
        left, right = sorted((root(one), root(other)))
        parent[left] = parent[right] = node
        children.append((left, right))
    return children


def _number(children: list[tuple[int, int]], n: int, stop: int) -> npt.NDArray[np.int64]:
    """Numbers the subtrees of nodes below ``stop`` in the order in which scipy meets them.

    That is depth first; where a merge is undone, its merges come before its points.
    """
    labels = np.empty(n, np.int64)
    label = -1
    todo = [(n + len(children) - 1, False)]
    while todo:
        node, inside = todo.pop()
        if not inside and node < stop:
            label, inside = label + 1, True
        if node < n:
            labels[node] = label
            continue
        left, right = children[node - n]
        below = [left, right] if inside else sorted((left, right), key=lambda child: child < n)
        todo += [(child, inside) for child in reversed(below)]
    return labels
