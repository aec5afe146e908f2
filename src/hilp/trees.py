"""Observations: one array of rows, or a named tree of them (a vector, an image of bytes, both) that share their rows.

Code that takes either is written with these functions. They serve numpy and jax alike.
"""

from collections.abc import Callable, Mapping
from typing import Any

Tree = Any  # an array, or a dict of named arrays


def over(function: Callable[..., Any], *trees: Tree) -> Tree:
    """The function of every array of a tree (of the arrays of one name, where there are several trees)."""
    if isinstance(trees[0], Mapping):
        return {name: function(*(tree[name] for tree in trees)) for name in sorted(trees[0])}
    return function(*trees)


def named(tree: Tree, prefix: str) -> dict[str, Any]:
    """The arrays of a tree as columns: `prefix` itself for one array, `prefix/name` for those of a dict."""
    if isinstance(tree, Mapping):
        return {f"{prefix}/{name}": tree[name] for name in sorted(tree)}
    return {prefix: tree}


def unnamed(columns: Mapping[str, Any], prefix: str) -> Tree:
    """The tree behind the columns of `named`."""
    if prefix in columns:
        return columns[prefix]
    return {key.removeprefix(f"{prefix}/"): column for key, column in columns.items() if key.startswith(f"{prefix}/")}


def rows(tree: Tree) -> int:
    """How many rows a tree has."""
    return len(next(iter(tree.values()))) if isinstance(tree, Mapping) else len(tree)
