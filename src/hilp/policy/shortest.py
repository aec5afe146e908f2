"""Shortest ways on the graph of the data, from all landmarks to some goals, by SciPy."""

from __future__ import annotations

import numpy as np

from hilp.policy.graph import Graph


def by_scipy(graph: Graph, prices: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Steps from every landmark to each goal, goals x landmarks.

    prices: of the edges; last: steps from landmarks around each goal to it, goals x landmarks, infinite for the others.
    """
    from scipy.sparse import csr_matrix  # here: a policy that plans on no graph starts without it
    from scipy.sparse.csgraph import dijkstra

    number, landmark = np.nonzero(np.isfinite(last))
    goals, count = last.shape
    # Searched backwards, from goals to all landmarks: the row of an edge is where it leads to.
    rows = np.concatenate([graph.target, count + number])
    columns = np.concatenate([graph.origin, landmark])
    table = csr_matrix((np.concatenate([prices, last[number, landmark]]), (rows, columns)), (count + goals,) * 2)
    found: np.ndarray = dijkstra(table, indices=count + np.arange(goals))[:, :count]
    return found
