"""Errors for people: what was wrong, where, and what to do, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HilpError(Exception):
    """A user's mistake. The command line prints its message on one line and exits with code 2."""


class PromptUnsupported(HilpError):
    """The method behind a policy has no rule for the prompt asked of it."""


class TrainingStopped(HilpError):
    """Training was interrupted and saved."""


class TrainingDiverged(HilpError):
    """A loss became NaN or infinite. The last good checkpoint is kept."""


def nearest(word: str, options: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest right one, or all of them."""
    names = sorted(options)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"choose from: {', '.join(names)}"


def printable(text: str, keep: str = "") -> str:
    """A text that is safe to print: names of files may hold line breaks, terminal codes and bytes of any kind."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
