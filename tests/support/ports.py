"""Ports that nobody listens on: two runs of the tests on one machine do not take each other's program for their own."""

import socket
from contextlib import suppress


def free_port() -> int:
    """One of this machine's loopback; free now, and not given again soon."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def is_served(port: int) -> bool:
    """Whether a program accepts connections at a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
