"""The page as one HTML text: its style and scripts inside, nothing fetched from elsewhere."""

from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ("draw.js", "gif.js", "home.js", "page.js")


def html(before: Sequence[str] = (), nonce: str = "") -> str:
    """The page. before: scripts that run first, such as one that sets `window.hilpConnect`."""
    own = f' nonce="{nonce}"' if nonce else ""
    style = f"<style{own}>\n{read('page.css')}</style>"
    scripts = [script.replace("</script", "<\\/script") for script in [*before, *map(read, SCRIPTS)]]
    tags = "\n".join(f"<script{own}>\n{script}</script>" for script in scripts)
    return read("page.html").replace("<!-- style -->", style).replace("<!-- scripts -->", tags)


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
