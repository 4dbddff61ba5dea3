"""The objects of a bundle, as Helm renders its chart."""

import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.support import helm

Object = dict[str, Any]

STAYS = "pre-install,pre-upgrade,pre-rollback"
"""When Helm makes the hooks that are there for users."""


def objects(bundle: Mapping[str, str]) -> list[Object]:
    """The namespace, and what an installation makes, of a bundle, with hooks that stay. No test changes them."""
    namespace = yaml.safe_load(bundle["namespace.yaml"])
    chart = tuple((path, text) for path, text in bundle.items() if path.startswith("chart/"))
    return [namespace, *_installed(chart, namespace["metadata"]["name"])]


@lru_cache(maxsize=8)
def _installed(chart: tuple[tuple[str, str], ...], namespace: str) -> list[Object]:
    with TemporaryDirectory() as folder:
        for path, text in chart:
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        command = [str(helm.helm()), "template", "gpushare", f"{folder}/chart", "--namespace", namespace]
        environment = {"HOME": folder, "KUBECONFIG": "/dev/null"}
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    items = [item for item in yaml.load_all(printed, yaml.CSafeLoader) if item]
    return [one for one in items if one["metadata"].get("annotations", {}).get("helm.sh/hook", STAYS) == STAYS]
