"""A real Prometheus that has the samples of a text, and scrapes nothing."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from tests.support.waiting import wait_for


@contextmanager
def serving(folder: Path, openmetrics: str) -> Iterator[str]:
    """Its address."""
    (folder / "history.txt").write_text(openmetrics)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.txt"), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=100y",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(["prometheus", *arguments], stderr=log) as server:
        try:
            wait_for(lambda: is_ready(port), "Prometheus is ready")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def is_ready(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/-/ready") as answer:
        return bool(answer.status == 200)
    return False
