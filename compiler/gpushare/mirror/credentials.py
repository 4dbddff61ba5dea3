"""User names and passwords of registries, from a `config.json` as Docker, podman and skopeo write it.

Source of the format: Docker's documentation of `docker login`, and containers-auth.json(5). Credential helpers are other
programs, which are not run.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpushare.core.record import Record

MAX_BYTES = 1 << 20
"""The largest file that is read."""


class Login(Record):
    """A user name and a password; never printed."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"

    def basic(self) -> str:
        """Return the value of the header Authorization for HTTP's Basic scheme."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Credentials(Record):
    """Logins by registry. `helped`: a credential helper has them, for one registry or (`*`) for all."""

    logins: Mapping[str, Login]
    helped: frozenset[str] = frozenset()

    def of(self, host: str, name: str) -> Login | None:
        """Return the login for a repository: that of the longest path which begins it, else that of the host."""
        steps = [host, *name.split("/")]
        paths = ("/".join(steps[:length]) for length in range(len(steps), 0, -1))
        return next((self.logins[path] for path in paths if path in self.logins), None)

    def is_helped(self, host: str) -> bool:
        """Whether a credential helper would know the login of a host."""
        return host in self.helped or "*" in self.helped


NONE = Credentials(logins={})


def read(path: Path) -> Credentials:
    """Return the credentials in a file. Raises OSError, and ValueError for any other content; its text is not quoted."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("it has more than 1 MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    auths = document.get("auths", {}) if isinstance(document, dict) else None
    if not isinstance(auths, dict):
        raise ValueError("it has no `auths`, a mapping from registries to logins")
    found = {_host(name): _login(name, entry) for name, entry in auths.items()}
    helpers = document.get("credHelpers", {})
    helped = {*(map(_host, helpers) if isinstance(helpers, dict) else ()), *({"*"} if document.get("credsStore") else ())}
    return Credentials(logins={name: login for name, login in found.items() if login}, helped=frozenset(helped))


def _host(name: str) -> str:
    """Return the registry without its scheme and API version: Docker writes `https://index.docker.io/v1/` for Docker Hub."""
    bare = name.partition("://")[2] or name
    bare = bare.rstrip("/").removesuffix("/v1").removesuffix("/v2")
    return "docker.io" if bare in {"index.docker.io", "registry-1.docker.io"} else bare


def _login(name: str, entry: Any) -> Login | None:
    if not isinstance(entry, dict):
        raise ValueError(f"its entry for {name[:100]!r} is not a mapping")
    if isinstance(entry.get("username"), str) and isinstance(entry.get("password"), str):
        return Login(user=entry["username"], password=entry["password"])
    auth = entry.get("auth")
    if not isinstance(auth, str) or not auth:
        return None
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
        user = password = ""
    if not colon:
        raise ValueError(f"its `auth` for {name[:100]!r} is not base64 of user:password")
    return Login(user=user, password=password)
