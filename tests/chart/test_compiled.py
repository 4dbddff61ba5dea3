"""Charts that compile really writes: both majors of Helm agree on every one of them."""

import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.pipeline import Compilation
from tests.bench import intents
from tests.chart.bundles import ODD
from tests.chart.reading import Object, by_identity, documents, documents_1_2, known_before, measured, problems
from tests.compiler.golden.update import examples
from tests.support import go_yaml, helm, scale


def intent(pools: str, more: str = "") -> bytes:
    """An intent of these pools and other parts of its spec."""
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: chart-test}\nspec:\n"
    return (head + textwrap.indent(f"{more}\npools:\n{textwrap.indent(pools, '  ')}", "  ")).encode()


def pool(name: str, sharing: str, *, card: str = "a100-sxm4-40gb", more: str = "", nodes: str = "") -> str:
    """One pool in flow style."""
    nodes = nodes or f"{{matchLabels: {{pool: {name!r}}}}}"
    return f'"{name}": {{card: {card}, nodes: {nodes}, gpusPerNode: 2, sharing: {sharing}{more}}}\n'


def odd_pool(name: str, value: str) -> str:
    """A pool whose name, label and toleration some reader of YAML takes for something else than text."""
    more = f", tolerations: [{{key: odd, value: {value!r}}}]"
    return pool(name, "{mode: exclusive}", nodes=f"{{matchLabels: {{example.org/odd: {value!r}}}}}", more=more)


MODES = "".join(
    [
        pool("whole", "{mode: exclusive}"),
        pool("sliced", "{mode: time-slicing, replicas: 4}", card="t4", more=", enforcement: {action: evict}"),
        pool("served", "{mode: mps, replicas: 8}", card="l40s", more=", tolerations: [{key: serving, operator: Exists}]"),
        pool("split", "{mode: mig, layout: {1g.5gb: 7}, replicas: 2}", more=", rollout: {maxUnavailable: 10%}"),
        pool("named", "{mode: exclusive}", nodes="{names: [gpu-01, gpu-02]}"),
    ]
)
ODD_NAMES = ("1e3", "on", "null", "no", "0x1f", "007", "y", "true", "a" * 48)
MIRROR = "namespace: shares\nplatform: {registry: 'registry.example.org:5000/m', imagePullSecrets: [mirror]}"
VGPU = "platform: {vgpuManager: {repository: registry.example.org/nvidia, version: '595.71.03'}, namespace: nvidia}"
MACHINES = pool("machines", "{mode: vgpu, profile: A10-12Q, kernel: '5.15'}", card="a10")
WATCHED = "monitoring: {serviceMonitor: true, alerts: true, dashboard: true, labels: {release: '1e3'}}"
K0S = "platform: {values: {hostPaths: {kubeletRootDir: /var/lib/k0s/kubelet/}}}"
INTENTS = {
    "modes": intent(MODES, "quotas: {atlas: {whole: 3}, cms: {split: {1g.5gb: 4}}}"),
    "existing": intent(MODES, "platform: {stack: existing}"),
    "device-plugin": intent(MODES, "platform: {stack: device-plugin}"),
    "elsewhere": intent(MODES, "platform: {namespace: nvidia}"),
    "mig-manager": intent(pool("split", "{mode: mig, goal: balanced}"), "platform: {partitioner: mig-manager}"),
    "mirrored": intent(MODES, MIRROR),
    "k0s": intent(pool("only", "{mode: exclusive}"), K0S),
    "odd-names": intent("".join(map(odd_pool, ODD_NAMES, ODD))),
    "observed": intent(MODES, "adoption: observe\nquotas: {atlas: {whole: 3}}\nkubernetes: '1.36'"),
    "observed-everywhere": intent(MODES, "adoption: observe\nadmission: {enforce: audit, scope: cluster}"),
    "observed-existing": intent(MODES, "adoption: observe\nplatform: {stack: existing}"),
    "watched": intent(pool("only", "{mode: exclusive}"), WATCHED),
    "vgpu": intent(MODES + MACHINES, VGPU),
    "vgpu-alone": intent(MACHINES, VGPU),
    "one": intent(pool("only", "{mode: time-slicing, replicas: 2}")),
    "fifty": intents.many_pools(50, nodes=2).encode(),
    **{example.name: (example / "intent.yaml").read_bytes() for example in examples()},
}


SMALL = [name for name in INTENTS if name != "fifty"]


@pytest.fixture(scope="session")
def compiled() -> Callable[[str], Compilation]:
    """An intent by its name, compiled without a former bundle."""

    def compiled(name: str) -> Compilation:
        found = pipeline.compile_intent(INTENTS[name], name, lock.EMPTY)
        assert found.artifacts, (name, found.findings)
        return found

    return cache(compiled)


def written(compilation: Compilation, folder: Path) -> Path:
    """The chart, written into the folder."""
    for artifact in compilation.artifacts:
        if artifact.path.startswith("chart/"):
            file = folder / artifact.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(artifact.text)
    return folder / "chart"


def read_lock(text: str) -> Lock:
    """The lock in the text of its file."""
    found = lock.read(text.encode())
    assert isinstance(found, Lock)
    return found


def agree(compilation: Compilation, folder: Path, run_helm: Callable[..., Any]) -> dict[tuple[str, str, str], Object]:
    """The objects, which both majors render alike, with the policies and the tenancy whose sizes were known before."""
    assert compilation.plan is not None
    command = ("template", "gpushare", written(compilation, folder), "--namespace", compilation.plan.intent.namespace)
    first, second = (documents(run_helm(major, *command).stdout) for major in helm.MAJORS)
    assert by_identity(first) == by_identity(second)
    values = yaml.safe_load((folder / "chart" / "values.yaml").read_text())
    assert measured(first) == known_before(values, compilation.plan.intent.namespace)
    return by_identity(first)


@pytest.mark.parametrize("name", scale.part(SMALL, 8) + ["fifty"] * scale.is_long)
def test_both_majors_render_equal_objects(name: str, compiled, tmp_path, run_helm) -> None:
    agree(compiled(name), tmp_path, run_helm)


def test_kubelet_folder_equals_the_one_given_to_the_operator(compiled, tmp_path, run_helm) -> None:
    objects = agree(compiled("k0s"), tmp_path, run_helm)
    for name in ("gpushare-only", "gpushare-release"):
        volumes = objects["DaemonSet", "gpu-system", name]["spec"]["template"]["spec"]["volumes"]
        [folder] = [volume["hostPath"]["path"] for volume in volumes if volume["name"] == "kubelet"]
        assert folder == "/var/lib/k0s/kubelet"


def test_kubelets_own_folder_is_mounted_in_every_pool(compiled, tmp_path, run_helm) -> None:
    """Kubelet's list of claims lies in it, which another DRA driver's pods may have on any node."""
    dra = compiled("20-dra")
    former = next(one for one in dra.artifacts if one.path == lock.FILE)
    after = pipeline.compile_intent(INTENTS["one"], "one", read_lock(former.text))
    for number, compilation in enumerate((compiled("one"), dra, after)):
        objects = agree(compilation, tmp_path / str(number), run_helm)
        for _, item in sorted((key, item) for key, item in objects.items() if key[0] == "DaemonSet"):
            pod = item["spec"]["template"]["spec"]
            assert "/var/lib/kubelet" in [one["hostPath"]["path"] for one in pod["volumes"] if one["name"] == "kubelet"]
            mounts = [one for each in [*pod.get("initContainers", []), *pod["containers"]] for one in each["volumeMounts"]]
            found = [one for one in mounts if one["name"] == "kubelet"]
            assert found
            assert all(one["readOnly"] for one in found)
            assert {(one["mountPath"], one["mountPropagation"]) for one in found} == {("/var/lib/kubelet", "HostToContainer")}


@pytest.mark.parametrize("name", ["vgpu", "vgpu-alone"])
def test_configs_of_vgpus_are_where_the_operator_reads_them_and_stay(name: str, compiled, tmp_path, run_helm) -> None:
    objects = agree(compiled(name), tmp_path, run_helm)
    made = objects["ConfigMap", "nvidia", "gpushare-vgpu"]
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    [text] = [one.text for one in compiled(name).artifacts if one.path == "chart/files/vgpu/config.yaml"]
    assert made["data"] == {"config.yaml": text}
    assert not [identity for identity in objects if "machines" in identity[2]], "no object for a pool of virtual machines"


def test_previous_profile_generations_stay_in_the_configmap(tmp_path, run_helm) -> None:
    previous, keys = lock.EMPTY, set()
    for replicas in (2, 3, 4):
        text = intent(pool("only", f"{{mode: time-slicing, replicas: {replicas}}}"))
        compilation = pipeline.compile_intent(text, "former.yaml", previous)
        objects = agree(compilation, tmp_path / str(replicas), run_helm)
        written = next(lock.read(artifact.text.encode()) for artifact in compilation.artifacts if artifact.path == lock.FILE)
        assert isinstance(written, Lock)
        previous = written
        assert compilation.plan is not None
        keys.add(compilation.plan.pools[0].profile.key)
        data = objects["ConfigMap", "gpu-system", "gpushare-profiles"]["data"]
        assert set(data) == {f"{key}-{side}" for key in keys for side in "ab"}
    assert len(keys) == 3


def test_generated_files_are_clean_under_yamllint(compiled) -> None:
    for artifact in (*compiled("modes").artifacts, *compiled("mig-manager").artifacts):
        if artifact.path.endswith(".yaml") and "/templates/" not in artifact.path:
            assert problems(artifact.text) == [], artifact.path


def test_every_generated_file_reads_the_same_in_yaml_1_1_1_2_and_go(compiled, tmp_path) -> None:
    named = {
        artifact.text: f"{name}/{artifact.path}"
        for name in {*scale.some(SMALL, 6), "odd-names"}
        for artifact in compiled(name).artifacts
        if artifact.path.endswith(".yaml") and "/templates/" not in artifact.path and artifact.text.strip()
    }
    texts = {path: text for text, path in named.items()}
    assert len(texts) > (100 if scale.is_long else 50)
    go = go_yaml.read(texts, tmp_path)
    for path, text in texts.items():
        [first], [second] = documents(text), documents_1_2(text)
        assert first == second == go[path], path
