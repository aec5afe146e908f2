"""A small Hugging Face Hub on this machine: the endpoints of the real one that pushing and pulling models needs.

Written from Hugging Face's documentation of its API (https://huggingface.co/docs/hub/api, Git LFS' batch API) and held
against what its own client asks for. Repositories are in memory; a commit is a mapping of paths to bytes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = ".safetensors"  # what the Hub keeps by LFS, as its .gitattributes say
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # the newest comes last
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes]) -> str:
        """Add a commit of these files; its name."""
        told = sorted((name, hashlib.sha1(content).hexdigest()) for name, content in files.items())
        sha = hashlib.sha1(json.dumps([len(self.commits), told]).encode()).hexdigest()
        self.commits[sha] = files
        return sha

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def find(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a name of a commit stands for."""
        named = {"main": self.head, **self.tags}.get(revision, revision)
        return named if named in self.commits else None


class Hub(ThreadingHTTPServer):
    """The server; tests look at its repositories and spoil its answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.users = {"hf_ann": "ann", "hf_bob": "bob"}  # by token
        self.large: dict[str, bytes] = {}  # by sha256
        self.connections: list[socket.socket] = []  # which clients keep open
        self.asked: list[str] = []  # method and path of every request
        self.status: tuple[str, int] | None = None  # for requests that match: an answer without content
        self.cut, self.cuts = "", 0  # of files that match, the second half gets lost on the way, so many times
        self.claims: dict[str, int] = {}  # sizes that listings tell instead of the real ones
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Be gone."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


Answer = tuple[int, Any, dict[str, str]]


class Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.answer: Answer = status, {"error": message or code}, {"X-Error-Code": code, "X-Error-Message": message}


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content, headers = self.answer(path)
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        lost = self.command == "GET" and self.server.cuts > 0 and re.search(self.server.cut, path)
        self.server.cuts -= bool(lost)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw[: len(raw) // 2] if lost else raw)
        if lost:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def answer(self, path: str) -> Answer:
        wanted = f"{self.command} {path}"
        if self.server.status is not None and re.search(self.server.status[0], wanted):
            return self.server.status[1], b"", {}
        try:
            for pattern, function in ROUTES.items():
                if match := re.fullmatch(pattern, wanted):
                    found = function(self, *match.groups())
                    return found if isinstance(found, tuple) else (200, found, {})
        except Refused as refused:
            return refused.answer
        return 404, {"error": f"no such endpoint: {wanted}"}, {}

    @property
    def user(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.server.users:
            raise Refused(401, message="Invalid credentials in Authorization header")
        return self.server.users.get(token)

    def repo(self, name: str, write: bool = False) -> Repo:
        repo, owner = self.server.repos.get(name), name.partition("/")[0] == self.user
        if repo is None or (repo.private and not owner):
            raise Refused(404 if self.user else 401, "RepoNotFound", "Repository not found")
        if repo.gated and not owner:
            raise Refused(403, "GatedRepo", "Access to it is restricted")
        if write and not owner:
            raise Refused(403, message="You don't have the rights")
        return repo

    def at(self, name: str, revision: str) -> tuple[Repo, str]:
        repo = self.repo(name)
        sha = repo.find(revision)
        if sha is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, sha

    # ---- reading

    def info(self, name: str, revision: str = "main") -> Any:
        repo, sha = self.at(name, revision)
        files = [
            {"rfilename": path, "size": self.server.claims.get(path, len(content)), "blobId": blob(content)}
            for path, content in repo.commits[sha].items()
        ]
        return {"id": name, "modelId": name, "sha": sha, "private": repo.private, "siblings": files, "tags": []}

    def tree(self, name: str, revision: str) -> Any:
        repo, sha = self.at(name, revision)
        found = []
        for path, content in repo.commits[sha].items():
            one: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": blob(content)}
            if path.endswith(LARGE):
                one["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
            found.append(one)
        return found

    def resolve(self, name: str, revision: str, path: str) -> Answer:
        repo, sha = self.at(name, revision)
        content = repo.commits[sha].get(path)
        if content is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        etag = sha256(content) if path.endswith(LARGE) else blob(content)
        headers = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if match is None:
            return 200, content, headers
        start = int(match[1])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return 206, content[start:], headers

    # ---- writing

    def create(self) -> Any:
        asked = json.loads(self.body)
        if self.user is None:
            raise Refused(401, message="Unauthorized")
        owner = asked.get("organization") or self.user
        if owner != self.user:
            raise Refused(403, message=f"You don't have the rights to create a model under the namespace '{owner}'")
        name = f"{owner}/{asked['name']}"
        if name in self.server.repos:
            raise Refused(409, message="You already created this model repo")
        private = asked.get("visibility", "private" if asked.get("private") else "public") == "private"
        self.server.repos[name] = repo = Repo(private)
        repo.commit({".gitattributes": ATTRIBUTES})
        return {"url": f"{self.server.address}/{name}", "name": name, "id": name}

    def validate(self) -> Any:
        """The Hub's rules for the head of a card, as far as they concern ours."""
        import yaml

        content = json.loads(self.body)["content"]
        head = yaml.safe_load(content.split("---\n")[1]) if content.startswith("---\n") else {}
        wrong = [key for key in ("license", "library_name", "pipeline_tag") if not isinstance(head.get(key, ""), str)]
        wrong += [key for key in ("tags", "datasets") if not all(isinstance(one, str) for one in head.get(key, []))]
        errors = [{"message": f'"{key}" must be a string'} for key in wrong]
        return 400 if errors else 200, {"errors": errors, "warnings": []}, {}

    def preupload(self, name: str, _: str) -> Any:
        repo = self.repo(name, write=True)
        now = repo.commits[repo.head]
        files = []
        for one in json.loads(self.body)["files"]:
            mode = "lfs" if one["path"].endswith(LARGE) else "regular"
            known = blob(now[one["path"]]) if one["path"] in now and mode == "regular" else None
            files.append({"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": known})
        return {"files": files}

    def batch(self, name: str) -> Any:
        self.repo(name, write=True)
        found = []
        for one in json.loads(self.body)["objects"]:
            link = {"href": f"{self.server.address}/large/{one['oid']}"}
            found.append({**one, **({} if one["oid"] in self.server.large else {"actions": {"upload": link}})})
        return {"transfer": "basic", "objects": found}

    def put(self, oid: str) -> Any:
        if sha256(self.body) != oid:
            raise Refused(400, message="these are other bytes")
        self.server.large[oid] = self.body
        return {}

    def commit(self, name: str, revision: str) -> Any:
        repo = self.repo(name, write=True)
        header, *operations = [json.loads(line) for line in self.body.splitlines()]
        if header["value"].get("parentCommit", repo.head) != repo.head or revision != "main":
            raise Refused(412, message="A commit has happened since")
        files = dict(repo.commits[repo.head])
        for one in operations:
            value = one["value"]
            if one["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif one["key"] == "deletedFile":
                del files[value["path"]]
            else:
                raise Refused(400, message=f"unknown: {one['key']}")
        sha = repo.commit(files)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.server.address}/{name}/commit/{sha}"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def blob(content: bytes) -> str:
    """As git names a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES: dict[str, Callable[..., Any]] = {
    f"GET /api/models/{NAME}": Handler.info,
    f"GET /api/models/{NAME}/revision/(.+)": Handler.info,
    f"GET /api/models/{NAME}/tree/([^/]+)": Handler.tree,
    f"(?:GET|HEAD) /{NAME}/resolve/([^/]+)/(.+)": Handler.resolve,
    "POST /api/repos/create": Handler.create,
    "POST /api/validate-yaml": Handler.validate,
    f"POST /api/models/{NAME}/preupload/(.+)": Handler.preupload,
    f"POST /{NAME}\\.git/info/lfs/objects/batch": Handler.batch,
    "PUT /large/(.+)": Handler.put,
    f"POST /api/models/{NAME}/commit/(.+)": Handler.commit,
}
