"""docs/modes.md: the pods are those of the bundles, and `gpushare status` prints what the page shows while such a pod runs."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.offering import modes
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import LiveCluster
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/modes.md").read_text(encoding="utf-8")
SECTIONS = {
    title: text
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    if "kind: ClusterIntent" in text
}


def intent(section: str) -> str:
    return str(re.findall(r"```yaml\n# \S+\.yaml\n(apiVersion: gpushare.dev/v1\n.*?)```", section, re.DOTALL)[0])


def pod(section: str) -> dict[str, Any]:
    """The pod of the section, or the part of one."""
    blocks = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return next(dict(yaml.safe_load(block)) for block in blocks if "nodeSelector" in block)


def has(whole: Any, part: Any) -> bool:
    """Whether the part is in the whole, at the same place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and has(whole[name], inner) for name, inner in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(has, whole, part))
    return bool(whole == part)


def test_the_page_has_every_way_to_share_that_nvidias_cards_have() -> None:
    pools = (pipeline.compile_intent(intent(text).encode(), "intent.yaml", lock.EMPTY).plan for text in SECTIONS.values())
    shown = {modes.of(pool.pool).variant.word for plan in pools if plan for pool in plan.pools}
    ways = {way.word for mode in modes.MODES if "nvidia" in mode.vendors and not mode.serves_vms for way in mode.variants}
    assert shown == ways - {"exclusive"}


@pytest.mark.parametrize("title", SECTIONS)
def test_an_intent_of_the_page_has_no_finding(title: str) -> None:
    assert pipeline.compile_intent(intent(SECTIONS[title]).encode(), "intent.yaml", lock.EMPTY).findings == ()


@pytest.mark.parametrize("title", SECTIONS)
def test_a_pod_of_the_page_is_one_of_the_bundle(title: str) -> None:
    compilation = pipeline.compile_intent(intent(SECTIONS[title]).encode(), "intent.yaml", lock.EMPTY)
    readme = next(one.text for one in compilation.artifacts if one.path == "README.md")
    blocks = re.findall(r"(?:^    .*\n)+", readme, re.MULTILINE)
    whole = next(yaml.safe_load(dedent(block)) for block in blocks if "kind: Pod" in block)
    assert has(whole, pod(SECTIONS[title]))


@pytest.mark.parametrize("title", SECTIONS)
def test_status_on_the_page_equals_the_commands_output(title: str, tmp_path: Path) -> None:
    text, spec = intent(SECTIONS[title]), pod(SECTIONS[title])["spec"]
    [(name, pool)] = yaml.safe_load(text)["spec"]["pools"].items()
    with ApiServer(token="secret") as api:
        cluster = LiveCluster(api, text)
        for number in range(pool["nodes"]["expected"]):
            cluster.add_node(f"gpu-{number}", name)
        api.add_pod("mine", namespace="team", node="gpu-0", limits=spec["containers"][0]["resources"]["limits"])
        done = gpushare("status", cwd=tmp_path, environment=api.kubeconfig(tmp_path / "kubeconfig"))
    assert f"```console\n$ gpushare status\n{done.stdout}```" in SECTIONS[title], done.stdout + done.stderr
