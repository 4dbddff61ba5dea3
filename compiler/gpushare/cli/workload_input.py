"""Reading a workload, for the commands that have --workload FILE."""

from gpushare.cli import streams
from gpushare.cli.progress import Progress
from gpushare.core.printable import visible
from gpushare.workload import loading
from gpushare.workload.requests import Workload


def read(name: str) -> Workload:
    """Return the workload of a file, or of stdin if the name is `-`. Raises HintedError."""
    data, file = streams.read(name, loading.MAX_BYTES, loading.FORMS)
    with Progress(f"reading {visible(file)}"):
        return loading.load(data, file)
