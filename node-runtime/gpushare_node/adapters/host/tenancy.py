"""The tenancy file that the chart projects beside the policy, read again when it changes.

If it cannot be read, the last known tenancy stays in force: a lost list is not an empty list, which would treat the platform's
pods as strays.
"""

import logging
import os
import threading
from pathlib import Path

from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.contract.struct import replace
from gpushare_node.contract.tenancy import UNKNOWN, Tenancy, read
from gpushare_node.reporting.log import escape

NAME = "tenancy.json"

_MAX_BYTES = 1 << 20
"""The size limit of a ConfigMap."""

_LOG = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


class TenancyFile:
    """One file. `path` None: there is no tenancy file, and none is expected. Thread-safe.

    The runtime's own `namespace` always belongs to the platform.
    """

    def __init__(self, path: Path | None, namespace: str) -> None:
        self._path = path
        self._own = frozenset({namespace})
        self._known = replace(UNKNOWN, platform_namespaces=self._own)
        self._stamp: _Stamp | None = None
        self._is_known = False
        self._lock = threading.Lock()
        self.problem = ""
        """Why the file cannot be read now; empty if it can."""

    def find(self) -> Tenancy:
        """Return the tenancy in force. A file that has not changed is not read again: every cycle calls this."""
        if self._path is not None:
            with self._lock:
                self._look(self._path)
        return self._known

    def platform(self) -> frozenset[str] | None:
        """Return the platform's namespaces; None if the file has never been read."""
        found = self.find()
        return found.platform if self._is_known else None

    def _look(self, path: Path) -> None:
        try:
            self._renew(path)
        except PolicyError as error:
            self._complain(f"{path}: {error}")
        except UnicodeDecodeError as error:
            self._complain(f"{path}: is not UTF-8: byte {error.start} is not the start of a character")
        except OSError as error:
            self._stamp = None
            self._complain(f"{path}: cannot be read: {error.strerror}")

    def _renew(self, path: Path) -> None:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            content = file.read(_MAX_BYTES + 1)
        self._stamp = stamp
        if len(content) > _MAX_BYTES:
            raise PolicyError((), f"is larger than {_MAX_BYTES >> 20} MiB, the limit of this file")
        found = read(content.decode("utf-8"))
        self._known = replace(found, platform_namespaces=found.platform_namespaces | self._own)
        self.problem, self._is_known = "", True
        if found.ignored:
            _LOG.warning("%s: unknown fields ignored: %s", path, escape(", ".join(found.ignored)))

    def _complain(self, text: str) -> None:
        if text != self.problem:
            self.problem = text
            _LOG.warning("%s; the last list that was read stays in force", escape(text))
