"""A file of the bundle before it is a file: a relative path and its text. Imports nothing of ours, writes nothing."""

try:  # hashlib loads OpenSSL before anything is asked of it, a twentieth of a cold compile; Python's own `random` does this too
    from _sha2 import sha256  # type: ignore[import-not-found]  # of CPython from 3.12 on
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # of CPython before
    except ImportError:
        from hashlib import sha256

from gpushare.core.record import Record

_LONGEST_PATH = 1000
"""Characters; file systems take 4,096 bytes, and the bundle's own place is a part of them."""


class Artifact(Record):
    """One file to write. `path` is relative to the bundle, with `/`, never absolute, never with `..`."""

    path: str
    text: str


def digest(text: str) -> str:
    """The text's identity in lock files and annotations: `sha256:` and 64 hex digits of its UTF-8 bytes."""
    return "sha256:" + hexdigest(text.encode())


def hexdigest(content: bytes) -> str:
    """64 hex digits of SHA-256."""
    return str(sha256(content).hexdigest())


def is_bundle_path(path: str) -> bool:
    """Whether the text names a file inside a bundle and nothing else: relative, without `.`, `..`, empty parts and controls."""
    if len(path) > _LONGEST_PATH or not path.isprintable():
        return False
    return "\\" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
