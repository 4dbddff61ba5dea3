"""Each bundle is rendered once by each major of Helm, and read once, however many tests look at it."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.chart.bundles import Bundle
from tests.chart.reading import Object, documents
from tests.support import helm

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_helm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Helm of a major with arguments, far from the user's own settings and clusters."""
    environment = {"HOME": str(tmp_path_factory.mktemp("helm-home")), "KUBECONFIG": "/dev/null"}

    def run(major: int, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(helm.helm(major)), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=check, env=environment)

    return run


@pytest.fixture(scope="session")
def chart_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Bundle], Path]:
    """The bundle's chart as a folder."""
    return cache(lambda bundle: bundle.write(tmp_path_factory.mktemp("bundle") / "chart"))


@pytest.fixture(scope="session")
def render(run_helm: Run, chart_of: Callable[[Bundle], Path]) -> Callable[[Bundle, int], str]:
    """The bundle's chart as `helm template` prints it."""
    return cache(
        lambda bundle, major: run_helm(major, "template", "gpushare", chart_of(bundle), "--namespace", "gpu-system").stdout
    )


@pytest.fixture(scope="session")
def rendered(render: Callable[[Bundle, int], str]) -> Callable[[Bundle, int], list[Object]]:
    """The documents of the bundle's chart, which no test changes."""
    return cache(lambda bundle, major: documents(render(bundle, major)))
