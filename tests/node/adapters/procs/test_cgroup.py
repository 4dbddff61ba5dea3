"""From the text of a cgroup file to the container: every way in which paths are written, and every way to forge one."""

import re
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpushare_node.adapters.procs.cgroup import containers, locate
from gpushare_node.guard.inputs import ContainerId

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UID_ = UID.replace("-", "_")
OTHER_UID = "9f9f9f9f-aaaa-bbbb-cccc-ddddeeeeffff"
ID, OTHER, NODE = "1a" * 32, "2b" * 32, "3c" * 32
STATIC = "0123456789abcdef0123456789abcdef"
BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
KIND = f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice"
FOUND = ContainerId(pod_uid=UID, container=ID)
NEIGHBOUR = ContainerId(pod_uid=OTHER_UID, container=OTHER)
FORGED = f"/kubepods/burstable/pod{OTHER_UID}/{OTHER}"

PATHS = {
    "burstable, systemd driver": f"{BURSTABLE}/cri-containerd-{ID}.scope",
    "best effort, systemd driver": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/cri-containerd-{ID}.scope"
    ),
    "guaranteed has no level": f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
    "CRI-O": f"{BURSTABLE}/crio-{ID}.scope",
    "CRI-O with crun": f"{BURSTABLE}/crio-{ID}.scope/container",
    "Docker": f"{BURSTABLE}/docker-{ID}.scope",
    "burstable, cgroupfs driver": f"/kubepods/burstable/pod{UID}/{ID}",
    "best effort, cgroupfs driver": f"/kubepods/besteffort/pod{UID}/{ID}",
    "guaranteed, cgroupfs driver": f"/kubepods/pod{UID}/{ID}",
    "CRI-O, cgroupfs driver": f"/kubepods/burstable/pod{UID}/crio-{ID}",
    "systemd's name under cgroupfs": f"/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
    "the same below containerd": f"/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
    "guaranteed, the same": f"/system.slice/containerd.service/kubepods-pod{UID_}.slice:cri-containerd:{ID}",
    "kind from within its node": f"/{KIND}/cri-containerd-{ID}.scope",
    "kind from the host": f"/system.slice/docker-{NODE}.scope/{KIND}/cri-containerd-{ID}.scope",
    "kind from the host, cgroup v1": f"/docker/{NODE}/kubelet/kubepods/besteffort/pod{UID}/{ID}",
    "private namespace": f"/../../../{BURSTABLE.removeprefix('/kubepods.slice/')}/cri-containerd-{ID}.scope",
    "private namespace, same level": f"/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
    "private namespace, another level": (
        f"/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{ID}.scope"
    ),
    "private namespace, guaranteed": f"/../../../kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
    "private namespace, cgroupfs": f"/../../pod{UID}/{ID}",
    "private namespace, cgroupfs, another level": f"/../../../burstable/pod{UID}/{ID}",
    "private namespace, from outside pods": f"/../../..{BURSTABLE}/cri-containerd-{ID}.scope",
    "private namespace, systemd's name under cgroupfs": f"/../kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
    "Docker in the container": f"{BURSTABLE}/cri-containerd-{ID}.scope/docker/{OTHER}",
    "systemd in the container": f"{BURSTABLE}/cri-containerd-{ID}.scope/init.scope",
    "removed": f"{BURSTABLE}/cri-containerd-{ID}.scope (deleted)",
}


@pytest.mark.failure_case(53)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_container_is_recognised_in_every_cgroup_path_format(path: str) -> None:
    assert locate(f"0::{path}\n").candidates == (FOUND,)


@pytest.mark.failure_case(53)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_nested_cgroup_belongs_to_the_same_container(path: str) -> None:
    path = path.removesuffix(" (deleted)")
    above = locate(f"0::{path}\n").cgroup
    assert path.startswith(above.removesuffix(".scope"))
    assert locate(f"0::{path}/made/by/the tenant\n").cgroup == above


@pytest.mark.failure_case(53)
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/machine.slice/libpod-" + ID + ".scope",
        "/system.slice/nvidia-persistenced.service",
        "/init.scope",
        "/user.slice/user-1000.slice/session-3.scope",
        "/docker/" + NODE,
        "/kubepods.slice",
        "/kubepods/burstable",
        f"{BURSTABLE}/crio-conmon-{ID}.scope",
        f"/../cri-containerd-{ID}.scope",
        f"/pod{UID}/{ID}",
        f"/kubepods/burstable/pod-with-a-name/{ID}",
    ],
)
def test_cgroup_outside_pods_has_no_container_and_keeps_its_path(path: str) -> None:
    found = locate(f"0::{path}\n")
    assert (found.candidates, found.cgroup) == ((), path)


@pytest.mark.parametrize("below", ["", f"/kata_{ID[:20]}", "/kata-sandbox", FORGED])
def test_process_in_the_pod_cgroup_belongs_to_the_pod(below: str) -> None:
    """runsc's sandbox and Kata's are there: only the host creates cgroups beside those of containers."""
    found = locate(f"0::/kubepods/burstable/pod{UID}{below}\n")
    assert (found.candidates, found.cgroup) == ((ContainerId(UID, ""),), f"/kubepods/burstable/pod{UID}")


@pytest.mark.failure_case(54)
def test_static_pod_is_identified_by_its_config_hash() -> None:
    expected = (ContainerId(pod_uid=STATIC, container=ID),)
    assert locate(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n").candidates == expected
    slice_name = f"kubepods-burstable-pod{STATIC}.slice"
    assert locate(f"0::/kubepods.slice/kubepods-burstable.slice/{slice_name}/crio-{ID}.scope\n").candidates == expected


def v1(path: str, *others: str) -> str:
    lines = [f"12:pids:{path}", f"11:cpu,cpuacct:{path}", f"1:name=systemd:{path}", *others]
    return "\n".join(lines) + "\n"


@pytest.mark.failure_case(53)
def test_the_lines_of_cgroup_v1_must_agree() -> None:
    path = f"/kubepods/burstable/pod{UID}/{ID}"
    assert locate(v1(path)).candidates == (FOUND,)
    assert locate(v1(path, "0::/")).candidates == (FOUND,)
    assert locate(v1(path, "10:rdma:/")).candidates == (FOUND,)
    assert locate(v1(path, f"0::{path}/init.scope")).candidates == (FOUND,)
    assert locate(v1(path, f"9:memory:{FORGED}")).candidates == ()
    assert locate(v1(path, f"9:memory:/kubepods/burstable/pod{UID}")).candidates == ()


def test_of_two_pods_on_a_path_only_the_outermost_counts() -> None:
    """A tenant with cgroups of its own can name them like a pod that the API server knows, before it knows the tenant's."""
    path = f"{BURSTABLE}/cri-containerd-{ID}.scope"
    found = locate(f"0::{path}/docker/{NODE}/kubelet{FORGED}\n")
    assert (found.candidates, found.cgroup) == ((FOUND,), path)


def test_the_containers_that_the_reader_is_in_itself_are_left_out() -> None:
    """A cluster that runs in a pod: its node is that pod's container, and its tenants are below."""
    node = f"/kubepods/burstable/pod{OTHER_UID}/{OTHER}/docker/{NODE}"
    own = containers(f"0::{node}/kubelet/kubepods/pod{OTHER_UID}/{NODE}\n")
    assert own == (NEIGHBOUR, ContainerId(pod_uid=OTHER_UID, container=NODE))
    tenant = f"{node}/kubelet/kubepods/besteffort/pod{UID}/{ID}"
    assert locate(f"0::{tenant}{FORGED}\n", own).candidates == (FOUND,)
    assert locate(f"0::{node}/system.slice/x.service\n", own).candidates == ()
    assert locate(f"0::{node}/kubelet/kubepods/pod{OTHER_UID}/{NODE}/sub\n", own).candidates == ()


def test_only_a_line_feed_ends_a_cgroup_line() -> None:
    for break_ in ("\r", "\v", "\f", "\x1c", "\x85", "\u2028"):
        text = f"0::{BURSTABLE}/cri-containerd-{ID}.scope/x{break_}1:cpu:{FORGED}\n"
        assert locate(text).candidates == (FOUND,)
        assert locate(f"0::/user.slice/x{break_}1:cpu:{FORGED}\n").candidates == ()


@pytest.mark.parametrize(
    "above",
    [
        "/user.slice/user-1000.slice/user@1000.service/app.slice",
        "/system.slice/jenkins.service",
        "/machine.slice/libpod-" + NODE + ".scope/container",
        f"/../cri-containerd-{NODE}.scope",
        f"/../../crio-{NODE}.scope/container",
        "/../../../../user.slice/user-1000.slice/user@1000.service",
        f"{BURSTABLE}/crio-conmon-{ID}.scope",
    ],
)
def test_forged_cgroup_names_outside_pods_are_not_containers(above: str) -> None:
    assert locate(f"0::{above}{FORGED}\n").candidates == ()
    assert locate(f"0::{above}/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}\n").candidates == ()


PIECES = st.sampled_from(
    [
        "kubepods",
        "kubepods.slice",
        "burstable",
        "kubepods-burstable.slice",
        f"pod{OTHER_UID}",
        f"kubepods-pod{UID_}.slice",
        OTHER,
        f"crio-{OTHER}.scope",
        f"kubepods-pod{UID_}.slice:cri-containerd:{OTHER}",
        "..",
        "docker",
        "user.slice",
        "x.service",
        f"crio-conmon-{OTHER}.scope",
        "init.scope",
        "",
        " (deleted)",
        "pod",
        "a\rb",
        f"libpod-{ID}.scope",
    ]
) | st.text(max_size=8).filter(lambda text: "/" not in text and "\n" not in text)


@given(st.sampled_from(sorted(PATHS.values())), st.lists(PIECES, max_size=8))
def test_any_nested_cgroup_stays_attributed_to_its_container(path: str, below: list[str]) -> None:
    path = path.removesuffix(" (deleted)")
    found = locate("0::" + "/".join([path, *below]) + "\n")
    assert (found.candidates, found.cgroup) == ((FOUND,), locate(f"0::{path}\n").cgroup)


@given(st.lists(st.lists(PIECES, max_size=9), min_size=1, max_size=4))
@example([["kubepods", f"pod{OTHER_UID}", f"libpod-{ID}.scope"]])
def test_random_cgroup_paths_raise_nothing_and_match_only_kubelet_paths(lines: list[list[str]]) -> None:
    paths = ["/" + "/".join(pieces) for pieces in lines]
    found = locate("".join(f"{number}:x:{path}\n" for number, path in enumerate(paths)))
    if found.candidates:
        assert any(path.startswith(found.cgroup) for path in paths)
        assert re.search(rf"(kubepods|/\.\.).*pod[0-9a-f_-]{{32,36}}(\.slice)?([/:](.*[-:])?({OTHER}|{ID})|$)", found.cgroup)


@given(st.text())
def test_arbitrary_cgroup_text_raises_nothing(text: str) -> None:
    assert locate(text).candidates == ()
    assert locate(f"0::{text}").candidates == ()


@pytest.mark.parametrize("service", ["containerd.service", "k0sworker.service", "snap.microk8s.daemon-kubelite.service"])
def test_a_container_of_a_runtime_with_another_cgroup_driver_than_kubelets_is_attributed(service: str) -> None:
    """Kubelet's driver is systemd and the container runtime's cgroupfs: runc makes one name of the slice, below its service."""
    uid, container = "0a1b2c3d-0000-4000-8000-000000000001", "c" * 64
    path = f"/system.slice/{service}/kubepods-besteffort-pod{uid.replace('-', '_')}.slice:cri-containerd:{container}"
    found = locate(f"0::{path}\n").candidates
    assert [(one.pod_uid, one.container) for one in found] == [(uid, container)]


def test_many_long_texts_do_not_fill_our_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(1_200):
            text = f"1:{number}:{PATHS['CRI-O']}/{'x' * 20_000}\n"
            assert locate(text).candidates == (FOUND,)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
