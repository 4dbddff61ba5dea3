"""Asks a registry whether it has an image: HEAD on its manifest, as the OCI distribution specification 1.1 defines it.

Only this module opens connections. It sends no request but HEAD for manifests and GET for tokens, and gives a login only to the
registry it belongs to and to the token service that this registry names.
"""

import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPMessage
from typing import Any, NoReturn

from gpushare.catalog.image_registry import has_host
from gpushare.core.record import Record
from gpushare.mirror.credentials import Credentials, Login

SECONDS = 30.0
"""How long one request may take."""
AT_ONCE = 8
"""Most requests at a time."""
MAX_TOKEN_BYTES = 1 << 20

_ACCEPT = ", ".join((
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
))
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')


class RegistryError(Exception):
    """The registry did not say whether it has an image: a message of one line, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ImageLocation(Record):
    """A reference taken apart: the registry's host, the repository's name there, and its tag or digest."""

    host: str
    name: str
    version: str


def place(reference: str) -> ImageLocation:
    """Return the parts of a reference. Without a host it is Docker Hub's, without a tag `latest`, as containerd reads it."""
    repository, at, digest = reference.partition("@")
    host, _, name = repository.partition("/") if has_host(repository) else ("docker.io", "", repository)
    name, colon, tag = name.partition(":")
    if host == "docker.io" and "/" not in name:
        name = f"library/{name}"
    return ImageLocation(host=host, name=name, version=digest if at else tag if colon else "latest")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without the login where the host is another, and never from HTTPS to HTTP."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - urllib's signature
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is None:
            return None
        if req.type == "https" and following.type != "https":
            raise RegistryError(f"{req.host} redirects to {following.host} without TLS")
        if following.host != req.host:
            following.remove_header("Authorization")
        following.method = req.get_method()
        return following


class Registries:
    """Asks registries with these credentials; `plain_http`: without TLS."""

    def __init__(self, credentials: Credentials, *, plain_http: bool) -> None:
        self._credentials = credentials
        self._scheme = "http" if plain_http else "https"
        self._opener = urllib.request.build_opener(_Redirects)

    def missing(self, references: Sequence[str]) -> tuple[str, ...]:
        """Return the references that their registries lack, in the given order. Raises RegistryError."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            there = list(threads.map(self.has, references))
        return tuple(reference for reference, is_there in zip(references, there, strict=True) if not is_there)

    def has(self, reference: str) -> bool:
        """Whether the registry has the image. Raises RegistryError."""
        asked = place(reference)
        host = "registry-1.docker.io" if asked.host == "docker.io" else asked.host
        url = f"{self._scheme}://{host}/v2/{asked.name}/manifests/{asked.version}"
        login = self._credentials.of(asked.host, asked.name)
        status, challenge = self._head(url, None, asked.host)
        if status == 401:
            status, _ = self._head(url, self._authorization(challenge, login, asked), asked.host)
        if status == 200:
            return True
        if status == 404:
            return False
        raise self._refused(status, reference, asked.host, login)

    def _refused(self, status: int, reference: str, host: str, login: Login | None) -> RegistryError:
        if status not in (401, 403):
            return RegistryError(f"{host} answered {status} when asked for {reference}", "try again later")
        if login:
            hint = "log in again, or ask for the right to pull"
            return RegistryError(f"{host} refuses the login for {reference} ({status})", hint)
        hint = f"`docker login {host}` writes a config.json; --docker-config names it"
        if self._credentials.is_helped(host):
            hint = "a credential helper has its login and is not run: --docker-config names a file with the login itself"
        return RegistryError(f"{host} wants a login for {reference} ({status})", hint)

    def _head(self, url: str, authorization: str | None, host: str) -> tuple[int, str]:
        """Return the status, and the header WWW-Authenticate."""
        headers = {"Accept": _ACCEPT} | ({"Authorization": authorization} if authorization else {})
        try:
            with self._opener.open(urllib.request.Request(url, method="HEAD", headers=headers), timeout=SECONDS) as answer:  # noqa: S310
                return int(answer.status), ""
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, problem.headers.get("WWW-Authenticate", "")
        except (OSError, HTTPException, ValueError, OverflowError) as problem:  # the last is a port that is none
            self._unreachable(host, problem)

    def _authorization(self, challenge: str, login: Login | None, asked: ImageLocation) -> str | None:
        """Return the header that the challenge asks for: a token of the service it names, or the login itself."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            return login.basic() if login else None
        given = dict(_PARAMETER.findall(rest))
        realm = given.get("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", f"{self._scheme}://")):
            raise RegistryError(f"{asked.host} asks for a login in a way that is not supported: {challenge[:200]!r}")
        query = {"scope": f"repository:{asked.name}:pull"} | ({"service": given["service"]} if "service" in given else {})
        headers = {"Authorization": login.basic()} if login else {}
        url = f"{realm}{'&' if '?' in realm else '?'}{urllib.parse.urlencode(query)}"
        try:
            with self._opener.open(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:  # noqa: S310
                document = json.loads(answer.read(MAX_TOKEN_BYTES))
        except urllib.error.HTTPError as problem:
            with problem:
                raise self._refused(problem.code, f"{asked.host}/{asked.name}", asked.host, login) from problem
        except (json.JSONDecodeError, RecursionError) as problem:
            raise RegistryError(f"the token service of {asked.host} answered with no JSON") from problem
        except (OSError, HTTPException, ValueError, OverflowError) as problem:  # the last is a port that is none
            self._unreachable(asked.host, problem)
        token = document.get("token") or document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError(f"the token service of {asked.host} gave no token")
        return f"Bearer {token}"

    def _unreachable(self, host: str, problem: Exception) -> NoReturn:
        reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        if isinstance(reason, ssl.SSLCertVerificationError):
            hint = "SSL_CERT_FILE names a file with the certificates of your authority"
            raise RegistryError(f"the certificate of {host} is not trusted: {reason.verify_message}", hint) from problem
        if isinstance(reason, ssl.SSLError):
            hint = "--plain-http asks a registry without TLS" if "WRONG_VERSION" in str(reason) else ""
            raise RegistryError(f"{host} does not speak TLS: {reason.reason or reason}", hint) from problem
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        hint = "check the name, the port, and HTTPS_PROXY"
        raise RegistryError(f"cannot reach {host}: {str(said).lower() or type(reason).__name__}", hint) from problem
