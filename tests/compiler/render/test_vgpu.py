"""The bundle of pools for virtual machines: values and configs for NVIDIA, labels, KubeVirt's names, and what is left out."""

import re
from textwrap import dedent
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.facts.catalog import managed_values, upstream
from gpushare.intent.types import VgpuManager
from gpushare_node.contract.struct import replace
from tests.compiler.render.compiled import POOLS, compiled, document, files, intent, side
from tests.compiler.render.test_upstream import leaves

MANAGER = '{vgpuManager: {repository: registry.example.org/nvidia, version: "595.71.03"}}'
DESKTOPS = (
    "{card: a10, nodes: {matchLabels: {p: desktops}, expected: 2}, gpusPerNode: 2,"
    ' sharing: {mode: vgpu, profile: A10-12Q, kernel: "5.15"}, tolerations: [{key: vm, operator: Exists}]}'
)
THIN = "{card: a16, nodes: {names: [n8]}, gpusPerNode: 4, sharing: {mode: vgpu, profile: A16-4Q, kernel: '5.14'}}"
VMS = {"desktops": DESKTOPS, "thin": THIN}
CONFIG = "chart/files/vgpu/config.yaml"


def bundle(*pools: str, platform: str = MANAGER, more: str = "") -> dict[str, str]:
    return files(*(pools or (*POOLS, *VMS)), platform=platform, more=more, **VMS)


def config(texts: dict[str, str]) -> Any:
    return document(texts, CONFIG)["vgpu-configs"]


def blocks(text: str) -> list[str]:
    return [dedent(block) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)]


def test_each_config_names_the_card_and_every_gpu_once() -> None:
    made = config(bundle())
    assert made.pop("none") == [{"devices": "all", "vgpu-devices": {}}]
    assert sorted(made.values(), key=str) == [
        [{"device-filter": "0x223610DE", "devices": "all", "vgpu-devices": {"A10-12Q": 2}}],
        # The A2 has the same PCI id.
        [{"device-filter": "0x25B610DE:0x14A910DE", "devices": "all", "vgpu-devices": {"A16-4Q": 4}}],
    ]


def test_the_name_of_a_config_follows_from_its_content_alone() -> None:
    again = files("other", platform=MANAGER, other=DESKTOPS.replace("p: desktops", "p: other"))
    assert config(bundle("desktops")) == config(again)
    [name] = config(again).keys() - {"none"}
    assert re.fullmatch(r"vgpu-[0-9a-f]{8}", name)
    assert side(again).vm_pools["other"].config.name == name


def test_former_configs_stay_for_nodes_that_still_name_them() -> None:
    first = pipeline.compile_intent(intent("desktops", platform=MANAGER, **VMS), "", lock.EMPTY)
    [text] = [one.text for one in first.artifacts if one.path == lock.FILE]
    before = lock.read(text.encode())
    assert isinstance(before, Lock)
    changed = DESKTOPS.replace("A10-12Q", "A10-24Q")
    _, second = compiled(intent("desktops", platform=MANAGER, desktops=changed), before)
    assert config(second).keys() > config({CONFIG: next(one.text for one in first.artifacts if one.path == CONFIG)}).keys()
    after = lock.read(second[lock.FILE].encode())
    assert isinstance(after, Lock)
    assert [list(older) for older in after.vgpu_configs.former] == [list(before.vgpu_configs.now)]
    assert lock.text(after) == second[lock.FILE]


def test_the_operator_makes_vgpus_and_runs_containers_elsewhere() -> None:
    values = document(bundle(), "gpu-operator/values.yaml")
    assert values["sandboxWorkloads"] == {"enabled": True, "defaultWorkload": "container", "mode": "kubevirt"}
    assert values["vgpuManager"] == {"enabled": True, "repository": "registry.example.org/nvidia", "version": "595.71.03"}
    assert values["vgpuDeviceManager"] == {"enabled": True, "config": {"name": "gpushare-vgpu", "default": "none"}}
    assert values["sandboxDevicePlugin"] == {"enabled": True}
    assert {"key": "vm", "operator": "Exists"} in values["daemonsets"]["tolerations"]


@pytest.mark.parametrize("file", ["values.yaml", "restore-values.yaml"])
@pytest.mark.parametrize("more", ["", ", registry: reg.example.org, imagePullSecrets: [nvidia], driver: {}"])
def test_every_value_is_one_of_nvidias_chart_and_ours_alone(file: str, more: str) -> None:
    values = document(bundle(platform=MANAGER[:-1] + more + "}"), f"gpu-operator/{file}")
    chart = upstream.chart("gpu-operator")
    for path in leaves(values):
        judged = upstream.check_path(chart, path)
        assert isinstance(judged, upstream.Known | upstream.OpenMap), path
        if isinstance(judged, upstream.Known) and judged.fact:
            value: Any = values
            for key in path:
                value = value[key]
            assert upstream.violations(chart, judged.fact, value, ()) == [], path
    if more:
        assert values["vgpuManager"]["imagePullSecrets"] == ["nvidia"]
        assert values["vgpuManager"]["repository"] == "registry.example.org/nvidia", "the site's own image is not mirrored"


def test_what_is_ours_with_vgpus_is_known_to_the_chart() -> None:
    chart = upstream.chart("gpu-operator")
    for path in managed_values.VGPUS:
        assert not isinstance(upstream.check_path(chart, tuple(path.split("."))), upstream.Unknown), path


def test_after_gpushare_nvidias_own_configs_make_the_same_vgpus() -> None:
    texts = bundle()
    values = document(texts, "gpu-operator/restore-values.yaml")
    assert values["vgpuDeviceManager"]["config"] == {"name": "", "default": "default"}
    name = side(texts).vm_pools["desktops"].config.name
    command = f"kubectl label nodes --overwrite --selector nvidia.com/vgpu.config={name} nvidia.com/vgpu.config=A10-12Q"
    assert command in texts["README.md"].partition("## Leaving")[2]
    assert command in document(texts, "chart/values.yaml")["uninstall"]["nextSteps"]
    assert "gpushare-vgpu" in texts["README.md"].partition("## Leaving")[2]


def test_the_readme_has_the_labels_and_kubevirts_part() -> None:
    texts = bundle()
    name = side(texts).vm_pools["thin"].config.name
    labels = f"nvidia.com/gpu.workload.config=vm-vgpu nvidia.com/vgpu.config={name}"
    assert f"kubectl label nodes NODE --overwrite {labels}  # pool thin" in texts["README.md"]
    [kubevirt] = [yaml.safe_load(block) for block in blocks(texts["README.md"]) if "permittedHostDevices" in block]
    assert kubevirt["spec"]["configuration"]["permittedHostDevices"]["mediatedDevices"] == [
        {
            "mdevNameSelector": f"NVIDIA {kind}",
            "resourceName": f"nvidia.com/NVIDIA_{kind}",
            "externalResourceProvider": True,
        }
        for kind in ("A10-12Q", "A16-4Q")
    ]
    assert "| desktops | NVIDIA A10 | A10-12Q | 2 | `nvidia.com/NVIDIA_A10-12Q` | 4 | 8 |" in texts["README.md"]
    assert "registry.example.org/nvidia/vgpu-manager:595.71.03" in texts["README.md"]
    assert "registry.example.org/nvidia/vgpu-manager:595.71.03" in texts["images.txt"]


def test_the_images_of_nvidias_programs_for_virtual_machines_are_listed() -> None:
    more = {line.split("/")[-1].partition(":")[0] for line in bundle("desktops")["images.txt"].splitlines() if line[0] != "#"}
    less = {line.split("/")[-1].partition(":")[0] for line in files("hpc")["images.txt"].splitlines() if line[0] != "#"}
    expected = {"vgpu-manager", "k8s-driver-manager", "vgpu-device-manager", "kubevirt-gpu-device-plugin"}
    assert more - less == expected


def test_the_chart_admission_and_monitoring_leave_the_pools_out() -> None:
    watched = "  monitoring: {alerts: true, dashboard: true, serviceMonitor: true}\n"
    texts = bundle("notebooks", "desktops", more=watched)
    alone = files("notebooks", more=watched)
    for path, text in texts.items():
        if path.startswith(("chart/", "monitoring/")) and path not in (
            CONFIG,
            "chart/values.yaml",
            "chart/templates/vgpu/config.yaml",
        ):
            assert text == alone[path], path
    ours, theirs = (document(side, "chart/values.yaml") for side in (texts, alone))
    ours["uninstall"].pop("nextSteps")
    theirs["uninstall"].pop("nextSteps")
    assert ours == theirs


def test_no_container_pool_has_a_node_of_virtual_machines() -> None:
    wide = "{card: a10, nodes: {matchLabels: {zone: a}}, gpusPerNode: 2, sharing: {mode: exclusive}}"
    above = DESKTOPS[:-1] + ", priority: 1}"
    texts = files("wide", "desktops", platform=MANAGER, wide=wide, desktops=above)
    [owned, leaving] = document(texts, "chart/values.yaml")["pools"]["wide"]["terms"]
    assert {"key": "p", "operator": "NotIn", "values": ["desktops"]} in owned["matchExpressions"]
    assert leaving["matchExpressions"] == [{"key": "gpushare.dev/pool", "operator": "In", "values": ["wide"]}]


def test_a_bundle_that_observes_makes_no_vgpus() -> None:
    texts = bundle(more="  adoption: observe\n")
    assert not [path for path in texts if "vgpu" in path or path.startswith("gpu-operator/")]
    assert "desktops" in side(texts).vm_pools


def test_without_such_pools_nothing_of_them_is_in_the_bundle() -> None:
    texts = files()
    assert not [path for path, text in texts.items() if "vgpu" in path or "vgpu" in text.lower()]


def test_the_image_of_the_manager_is_part_of_the_digest() -> None:
    plan, _ = compiled(intent("desktops", platform=MANAGER, **VMS))
    other, _ = compiled(intent("desktops", platform=MANAGER.replace("71.03", "71.05"), **VMS))
    assert plan.digest != other.digest
    assert plan.intent.platform == replace(
        other.intent.platform, vgpu_manager=VgpuManager(repository="registry.example.org/nvidia", version="595.71.03")
    )
