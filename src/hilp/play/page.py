"""The page as one HTML text: its style and scripts inside, nothing fetched from elsewhere."""

from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ("draw.js", "gif.js", "home.js", "page.js")
LOCAL = ("programs.js", "planning.js", "formulas.js", "prompts.js", "local.js")  # what takes the server's place
# Nothing is fetched from anywhere, and nothing is sent.
GUARD = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def html(before: Sequence[str] = (), nonce: str = "") -> str:
    """The page. before: scripts that run first, such as one that sets `window.hilpConnect`."""
    own = f' nonce="{nonce}"' if nonce else ""
    style = f"<style{own}>\n{read('page.css')}</style>"
    scripts = [script.replace("</script", "<\\/script") for script in [*before, *map(read, SCRIPTS)]]
    tags = "\n".join(f"<script{own}>\n{script}</script>" for script in scripts)
    return read("page.html").replace("<!-- style -->", style).replace("<!-- scripts -->", tags)


def without_server(note: str) -> str:
    """The page with a policy and its maze inside. note: the JSON that `hilp.play.export.described` gives."""
    inert = note.replace("<", "\\u003c")  # in strings alone: no text of a run's owner begins a tag or a comment
    text = html([f"window.hilpNote = {inert};\n", *map(read, LOCAL)])
    return text.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{GUARD}">', 1)


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
