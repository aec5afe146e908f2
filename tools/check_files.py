"""Files that are awkward to live with: no newline at the end, blanks at the end of a line, or too large.

Run: python tools/check_files.py [FILE ...]   (without files: all that git knows)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST = 1_000_000  # bytes: a clone stays quick; larger data is made by a command, not kept


def complaints(path: Path) -> Iterator[str]:
    """What is wrong with a file, a line each."""
    content = path.read_bytes()
    if len(content) > LARGEST:
        yield f"{path}: {len(content):,} bytes, more than {LARGEST:,}: keep the command that makes it instead"
    if b"\0" in content[:8000]:  # as git tells binary files
        return
    if content.endswith(b"\n\n"):
        yield f"{path}: ends in an empty line"
    elif content and not content.endswith(b"\n"):
        yield f"{path}: ends without a newline"
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.rstrip(b" \t\r") != line:
            yield f"{path}:{number}: blanks at the end of the line"


def main(names: list[str]) -> int:
    """Print all complaints; 1 if there are any."""
    if not names:
        done = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True)
        names = [name for name in done.stdout.decode().split("\0") if name]
    found = [line for name in names if (path := Path(name)).is_file() for line in complaints(path)]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
