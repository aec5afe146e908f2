"""What a room asks of those that are built on it: public names of the package, handed in by the package itself.

A policy can be asked to train a hierarchy over its skills, but training is built on policies. So the policy does not
know who trains; `hilp/__init__.py`, which knows every room and is always there first, says where to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_find: Callable[[str], Any] | None = None


def answer_with(find: Callable[[str], Any]) -> None:
    """Find public names by this."""
    global _find
    _find = find


def ask(name: str) -> Any:
    """The public name of the package."""
    assert _find is not None, "hilp/__init__.py was not run"
    return _find(name)
