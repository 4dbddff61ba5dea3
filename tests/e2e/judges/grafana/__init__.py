"""A program that reads a dashboard strictly by Grafana's own types, built once into the tests' cache.

The types are those of Grafana's Foundation SDK, which Grafana generates from the schemas of its dashboards, of panels and of
Prometheus' queries. `python -m tests.e2e.judges.grafana` builds the program.
"""

import subprocess
from pathlib import Path

from tests.support.go_module import GoModule


def program() -> Path:
    """The program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder / "reader"


def refusal(dashboard: str) -> str:
    """What Grafana's types say against the JSON of a dashboard; empty if they accept it."""
    done = subprocess.run([program()], input=dashboard, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise OSError(done.stderr)
    return done.stdout


_BUILT = GoModule(
    name="grafana",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder / "reader", "."),
)
