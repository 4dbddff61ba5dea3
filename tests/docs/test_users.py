"""docs/users.md: every manifest requests the share that the pool of docs/modes.md offers, and selects that pool."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.report.show import offer
from tests.docs.test_modes import SECTIONS, intent
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/users.md").read_text(encoding="utf-8")
MANIFESTS = [document for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for document in yaml.safe_load_all(block)]
KINDS = ["Pod", "ResourceFlavor", "ClusterQueue", "LocalQueue", "Job", None, "InferenceService", "RayCluster"]


def pool() -> tuple[str, str, int]:
    """The name, the resource and the number of shares of the pool that the page uses."""
    compilation = pipeline.compile_intent(intent(SECTIONS["Time-slicing"]).encode(), "intent.yaml", lock.EMPTY)
    assert compilation.plan is not None
    [(name, fields_of_pool)] = offer(compilation.plan)["pools"].items()
    [(resource, count)] = fields_of_pool["resources"].items()
    assert f"{fields_of_pool['devices'][0]['capMiB']} MiB" in PAGE
    return name, resource, count["total"]


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of the document, however deep, with its value."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from fields(inner)


def test_the_page_has_these_manifests() -> None:
    assert [manifest.get("kind") for manifest in MANIFESTS] == KINDS


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.get("kind", "values"))
def test_a_manifest_requests_the_share_of_its_pool(manifest: dict[str, Any]) -> None:
    name, resource, _ = pool()
    found = dict(fields(manifest))
    requested = {key: value for key, value in fields(manifest) if key.startswith("nvidia.com/")}
    assert requested.keys() <= {resource}
    assert all(int(value) == 1 for value in requested.values())
    assert found.get("gpushare.dev/pool", name) == name
    if "containers" in found or "model" in found:
        assert requested
        assert found["runtimeClassName"] == "nvidia"


def test_the_queue_has_the_shares_of_the_pool() -> None:
    _, resource, total = pool()
    [queue] = [manifest for manifest in MANIFESTS if manifest.get("kind") == "ClusterQueue"]
    [group] = queue["spec"]["resourceGroups"]
    assert group["coveredResources"] == [resource]
    assert group["flavors"][0]["resources"] == [{"name": resource, "nominalQuota": total}]
