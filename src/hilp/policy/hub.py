"""Policies on the Hugging Face Hub: a repository holds the files of a policy's folder, and a card.

Nothing that comes from there is believed. Only the files that a policy has are taken, none before its size is known,
and `artifact` loads them as it loads any stranger's: no code runs. Hugging Face's own client does the talking, the
caching, and the tokens.
"""

import contextlib
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hilp import storage
from hilp.errors import HilpError, reason, say, size_text, some
from hilp.policy import artifact
from hilp.runs import CONFIG

CARD = "README.md"
OURS = (CONFIG, artifact.WEIGHTS, artifact.BANK, artifact.GRAPH, artifact.LATENTS)
NEEDED = (CONFIG, artifact.WEIGHTS, artifact.BANK)
MOST = {CONFIG: 4 << 20, CARD: 1 << 20}  # bytes
MOST_BYTES = 2 << 30  # of all files together; a policy of pictures has some 40 MB
EMPTY = (".gitattributes", CARD)  # what the Hub puts into a new repository
PART = r"[\w][\w.-]{0,95}"
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


class Repository(NamedTuple):
    """A model on the Hub, at one of its revisions: a branch, a tag or a commit."""

    user: str
    name: str
    revision: str | None = None

    @staticmethod
    def named(text: str) -> "Repository":
        """user/name or hf://user/name, each with @revision or without."""
        match = re.fullmatch(rf"(?:hf:/{{1,2}})?({PART})/({PART})(?:@([\w./-]+))?", text, re.ASCII)
        if match is None:
            raise HilpError(f"'{text}' names nothing on the Hub: write user/name, or user/name@revision")
        return Repository(*match.groups())

    @property
    def id(self) -> str:
        return f"{self.user}/{self.name}"

    def __str__(self) -> str:
        return f"hf://{self.id}" + (f"@{self.revision}" if self.revision else "")


class Pushed(NamedTuple):
    """Where a policy is now."""

    address: str
    revision: str
    private: bool


def client() -> Any:
    """Hugging Face's client; one line where it is not installed."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise HilpError(f"the Hub needs {error.name or 'huggingface_hub'}: pip install 'hilp[hub]'") from error
    return huggingface_hub


@contextlib.contextmanager
def told(what: str, there: Repository) -> Iterator[None]:
    """Say on one line why the Hub did not do something; its client's own lines and bars are not shown beside it."""
    hub = client()
    bars = hub.utils.are_progress_bars_disabled()
    verbosity = hub.utils.logging.get_verbosity()
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    hub.utils.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)  # of what it builds on
            yield
    except HilpError:
        raise
    except hub.errors.GatedRepoError as error:
        raise HilpError(f"{what}: its owner grants access, ask for it on its page, then {LOG_IN}") from error
    except hub.errors.RevisionNotFoundError as error:
        raise HilpError(f"{what}: it has no revision '{there.revision}'") from error
    except hub.errors.RepositoryNotFoundError as error:
        raise HilpError(f"{what}: there is none of this name, or it is private: {LOG_IN}") from error
    except hub.errors.HfHubHTTPError as error:
        raise HilpError(f"{what}: {REFUSED.get(int(error.response.status_code)) or reason(error)}") from error
    except Exception as error:  # of its HTTP client, of Xet, of the disk
        raise HilpError(f"{what}: {reason(_first(error))}") from error
    finally:
        hub.utils.logging.set_verbosity(verbosity)
        if not bars:
            hub.utils.enable_progress_bars()


REFUSED = {
    401: f"the Hub does not know who you are: {LOG_IN}",
    403: "your token may not do that: it needs the right to write there",
    409: "another has just made it: push again",
    412: "another has just changed it: push again",
}


def _first(error: BaseException) -> BaseException:
    """What an error came from, where the client wraps it."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


# ---- from the Hub ----------------------------------------------------------------------------------------------------


def download(there: Repository, card: bool = False) -> Path:
    """The folder of a policy in the client's cache, where only what has changed is downloaded anew.

    Without a network it is what was downloaded last. card: with its card, where it has one.
    """
    hub = client()
    asked = (*OURS, CARD) if card else OURS
    with told(f"cannot download {there}", there):
        try:
            about = hub.HfApi().model_info(there.id, revision=there.revision, files_metadata=True)
        except Exception as error:
            if not _is_unreachable(error):
                raise
            return _downloaded(there, error)
        sizes = {one.rfilename: one.size for one in about.siblings or () if one.rfilename in asked}
        _require_policy(there, sizes)
        folder = Path(hub.snapshot_download(there.id, revision=there.revision, allow_patterns=sorted(sizes)))
    _require_policy(there, {name: (folder / name).stat().st_size for name in asked if (folder / name).is_file()})
    return folder


def _is_unreachable(error: Exception) -> bool:
    """Whether there is no network, none is wanted (HF_HUB_OFFLINE), or the Hub is down."""
    errors = client().errors
    if isinstance(error, errors.HfHubHTTPError):
        return bool(error.response.status_code >= 500)
    return isinstance(error, errors.OfflineModeIsEnabled) or _package(error) in ("httpx", "httpx2", "requests")


def _package(error: Exception) -> str:
    """Where an error comes from: versions of the client have several HTTP libraries."""
    return type(error).__module__.partition(".")[0]


def _downloaded(there: Repository, error: Exception) -> Path:
    """What was downloaded earlier."""
    hub = client()
    try:
        found = hub.snapshot_download(there.id, revision=there.revision, allow_patterns=OURS, local_files_only=True)
    except hub.errors.LocalEntryNotFoundError:
        raise HilpError(
            f"cannot download {there}: the Hub cannot be reached ({reason(error)}), and it was not downloaded before"
        ) from error
    say(f"the Hub cannot be reached: {there} is what was downloaded last")
    return Path(found)


def _require_policy(there: Repository, sizes: dict[str, int | None]) -> None:
    """Raise where a repository does not have what a policy has, or more of it than anybody would want."""
    lacking = [name for name in NEEDED if name not in sizes]
    if lacking:
        raise HilpError(f"{there} holds no hilp policy: it has no {lacking[0]}")
    for name, size in sizes.items():
        if size is None or size > MOST.get(name, MOST_BYTES):
            raise HilpError(
                f"{there}: {name} has {'an unknown size' if size is None else size_text(size)}, at most "
                f"{size_text(MOST.get(name, MOST_BYTES))} are downloaded"
            )
    if sum(size or 0 for size in sizes.values()) > MOST_BYTES:
        raise HilpError(f"{there} has more than {size_text(MOST_BYTES)}, which is all that is downloaded")


def pull(there: Repository, out: Path, overwrite: bool = False) -> dict[str, Any]:
    """Write what is on the Hub as a folder: whole, and only if it loads. Returns what `artifact.load` read."""
    folder = storage.with_a_name(out)
    if folder.exists() and not (overwrite and (folder / CONFIG).is_file()):
        what = "exists already" if (folder / CONFIG).is_file() else "exists and is no policy's folder"
        advice = "pass --overwrite or choose another --out" if (folder / CONFIG).is_file() else "choose another --out"
        raise HilpError(f"{folder} {what}: {advice}")
    source = download(there, card=True)
    try:
        found = artifact.load(source)
    except HilpError as error:
        raise HilpError(f"{there} is not taken: {error}") from error
    storage.clean_leftovers(folder)
    with storage.new_folder(folder) as temporary:
        for name in (*OURS, CARD):
            if (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
        if folder.exists():
            storage.carry_over(folder, temporary)
    return found


# ---- to the Hub ------------------------------------------------------------------------------------------------------


def push(folder: Path, there: Repository, card: str, public: bool | None = None) -> Pushed:
    """Write the folder of a policy and its card to the Hub, in one commit; what was pushed before stays a revision.

    public: whether a new repository is for all to see; has to be said.
    """
    hub = client()
    if there.revision is not None:
        raise HilpError(f"a push makes a revision: leave out @{there.revision}")
    if hub.get_token() is None:
        raise HilpError(f"cannot push to {there}: you are not logged in, {LOG_IN}")
    files = artifact.files(folder)
    with told(f"cannot push to {there}", there):
        api = hub.HfApi()
        about = _existing(api, there, public)
        old = () if about is None else {one.rfilename for one in about.siblings or ()}
        if about is None:
            api.create_repo(there.id, private=not public)
        adds = [hub.CommitOperationAdd(name, folder / name) for name in files]
        adds.append(hub.CommitOperationAdd(CARD, _merged(card, there) if CARD in old else card.encode()))
        gone = [hub.CommitOperationDelete(name) for name in OURS if name in old and name not in files]
        done = api.create_commit(
            there.id, [*adds, *gone], commit_message="Push a policy", parent_commit=about and about.sha
        )
        return Pushed(f"{api.endpoint}/{there.id}", done.oid, not public if about is None else bool(about.private))


def _existing(api: Any, there: Repository, public: bool | None) -> Any:
    """What the Hub has under a name; None where it has nothing. Raises where a policy cannot go there."""
    hub = client()
    try:
        about = api.model_info(there.id)
    except hub.errors.RepositoryNotFoundError:
        if public is None:
            raise HilpError(
                f"{there} is new: say whether it is for all to see, --public, or for you alone, --private"
            ) from None
        return None
    if public is not None and public == about.private:
        now = "private" if about.private else "public"
        raise HilpError(f"{there} is {now} already: change that on its page, and push without --public or --private")
    names = [one.rfilename for one in about.siblings or ()]
    if foreign := [name for name in names if name not in (*OURS, *EMPTY)]:
        if CONFIG not in names or not _is_policy(there):
            raise HilpError(f"{there} is taken by something else ({some(foreign, 3)}): choose another name")
    elif CONFIG in names and not _is_policy(there):
        raise HilpError(f"{there} is taken by a policy of another library: choose another name")
    return about


def _is_policy(there: Repository) -> bool:
    """Whether the config of a repository is one of ours."""
    path = Path(client().hf_hub_download(there.id, CONFIG))
    with contextlib.suppress(HilpError):
        found = storage.read_json(path) if path.stat().st_size <= MOST[CONFIG] else None
        return isinstance(found, dict) and found.get("format") == artifact.FORMAT
    return False


BEGIN, END = "<!-- made by hilp push: it writes all between these lines anew -->", "<!-- end of what hilp wrote -->"


def _merged(card: str, there: Repository) -> bytes:
    """A new card in the place of the old one; what its owner wrote around it stays."""
    path = Path(client().hf_hub_download(there.id, CARD))
    old = path.read_text(errors="replace") if path.stat().st_size <= MOST[CARD] else ""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return card.encode()
    return f"{before}{BEGIN}{card.partition(BEGIN)[2].partition(END)[0]}{END}{after}".encode()
