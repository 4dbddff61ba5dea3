"""A file of the bundle before it is written: a relative path and its text. Writes nothing."""

from typing import Any

try:  # importing hashlib loads OpenSSL, a twentieth of a cold compile; Python's own `random` imports it this way too
    from _sha2 import sha256  # type: ignore[import-not-found]  # of CPython from 3.12 on
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # of CPython before 3.12
    except ImportError:
        from hashlib import sha256

from gpushare.core import emit
from gpushare_node.contract.struct import Struct

_MAX_PATH_LENGTH = 1000
"""In characters. File systems accept 4,096 bytes, and the path of the bundle itself is part of them."""


class Artifact(Struct):
    """One file to write. `path` is relative to the bundle, with `/`, never absolute, never with `..`.

    `document` is that of which the text is the YAML, if the text was made so; else None. It is never changed.
    """

    path: str
    text: str
    document: Any = None


def digest(text: str) -> str:
    """Return the text's identity in lock files and annotations: `sha256:` and 64 hex digits of its UTF-8 bytes."""
    return "sha256:" + hexdigest(text.encode())


def hexdigest(content: bytes) -> str:
    """Return the 64 hex digits of SHA-256."""
    return str(sha256(content).hexdigest())


def content_hash(content: Any) -> str:
    """Return eight hex digits of the digest of a document's canonical JSON: its identity in labels and keys."""
    return hexdigest(emit.canonical_json(content).encode())[:8]


def is_bundle_path(path: str) -> bool:
    """Whether the text is a path of a file inside a bundle: relative, without `.`, `..`, empty parts and control characters."""
    if len(path) > _MAX_PATH_LENGTH or not path.isprintable():
        return False
    return "\\" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
