"""Reads the policy that a command is given. Every failure is a PolicyFileError with a message of one line."""

import sys
from pathlib import Path

from gpushare_node.contract.policy import read
from gpushare_node.contract.strict_document import PolicyError
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.reporting.log import escape

STDIN = "-"
MAX_BYTES = 1 << 20
"""The size limit of a ConfigMap."""


class PolicyFileError(Exception):
    """A policy that cannot be read; the message is `FILE: path.in.document: what is wrong`."""


def read_policy(name: str) -> DesiredPolicy:
    """Return the policy in the file of this name; `-` is standard input."""
    shown = "standard input" if name == STDIN else escape(name)
    try:
        text = _read(name).decode("utf-8")
        return DesiredPolicy(text=text, policy=read(text))
    except PolicyError as error:
        message = f"{error.path}: {error.message}"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte {error.start} is not the start of a character"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except _TooLargeError:
        message = f"is larger than {MAX_BYTES >> 20} MiB, the limit of a policy"
    raise PolicyFileError(f"{shown}: {escape(message)}")


class _TooLargeError(Exception):
    """More than MAX_BYTES."""


def _read(name: str) -> bytes:
    if name == STDIN:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _TooLargeError
    return content
