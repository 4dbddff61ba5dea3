"""AMD's GPUs as sysfs shows them: devices, modes, processes; and that nothing absent or contradictory counts as free."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.gpus.view import registrable
from gpushare_node.partition.state import FaultKind
from gpushare_node.vendors.amd.session import Session
from gpushare_node.vendors.driver import Code, DriverError
from tests.support.fake_amd.offers import HeterogeneousError, offers
from tests.support.fake_amd.sysfs import NODES, PROCESSES, FakeSysfs, hide_nodes

Divided = tuple[str, int, str, str]


def node(root: Path, *groups: Divided) -> FakeSysfs:
    """A node with so many GPUs of a card in each of these modes; empty modes are those of the driver."""
    made = FakeSysfs(root, *(card for card, count, _, _ in groups for _ in range(count)))
    modes = [(compute, memory) for _, count, compute, memory in groups for _ in range(count)]
    for gpu, (compute, memory) in zip(made.gpus, modes, strict=True):
        gpu.compute, gpu.memory = compute or gpu.compute, memory or gpu.memory
    made.load()
    return made


def counts(found: dict[str, list[str]]) -> dict[str, int]:
    return {name: len(ids) for name, ids in found.items()}


@pytest.mark.parametrize(
    ("groups", "single", "mixed"),
    [
        ([("mi300x", 8, "CPX", "NPS4")], {"amd.com/gpu": 64}, {"amd.com/cpx_nps4": 64}),
        ([("mi300x", 8, "SPX", "NPS1")], {"amd.com/gpu": 8}, {"amd.com/spx_nps1": 8}),
        (
            [("mi300x", 5, "SPX", "NPS1"), ("mi300x", 3, "CPX", "NPS1")],
            None,
            {"amd.com/spx_nps1": 5, "amd.com/cpx_nps1": 24},
        ),
        ([("mi210", 4, "", "")], {"amd.com/gpu": 4}, {"amd.com/gpu": 4}),
        ([("mi308x", 8, "CPX", "NPS1")], {"amd.com/gpu": 32}, {"amd.com/cpx_nps1": 32}),
        ([("mi355x", 8, "DPX", "NPS2")], {"amd.com/gpu": 16}, {"amd.com/dpx_nps2": 16}),
        ([("mi300a", 4, "TPX", "NPS1")], {"amd.com/gpu": 12}, {"amd.com/tpx_nps1": 12}),
    ],
)
def test_devices_are_those_that_amds_plugin_offers(
    tmp_path: Path, groups: list[Divided], single: dict[str, int] | None, mixed: dict[str, int]
) -> None:
    made = node(tmp_path, *groups)
    found = registrable(Session.open(tmp_path).survey())
    assert counts(offers(tmp_path, "mixed")) == mixed
    assert found == {name for ids in offers(tmp_path, "mixed").values() for name in ids}
    if single is None:
        with pytest.raises(HeterogeneousError):
            offers(made.root, "single")
    else:
        assert counts(offers(tmp_path, "single")) == single


def test_a_gpu_is_described_by_the_files_of_its_own(tmp_path: Path) -> None:
    node(tmp_path, ("mi300x", 2, "CPX", "NPS4"))
    first, second = Session.open(tmp_path).survey()
    assert (first.index, first.uuid, first.pci_device_id, first.pci_bus_id) == (
        0,
        "amd-a0b0c0d000000000",
        "0x74A11002",
        "0000:05:00.0",
    )
    assert (first.memory_mib, first.fault, second.uuid) == (196592, None, "amd-a0b0c0d000000001")
    assert first.modes is not None
    assert (first.modes.word, first.modes.devices) == ("CPX/NPS4", 8)
    assert (first.modes.available_compute, first.modes.available_memory) == (
        ("SPX", "DPX", "QPX", "CPX"),
        ("NPS1", "NPS2", "NPS4"),
    )
    assert [one.memory_mib for one in first.devices] == [24558, *[24574] * 7]


def test_partitions_are_their_gpus_wherever_the_kernel_numbers_them(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 2, "CPX", "NPS4"))
    before = Session.open(tmp_path).survey()
    made.number_shift = 0
    made.load()
    assert Session.open(tmp_path).survey() == before
    assert all(gpu.fault is None for gpu in before)


def test_processes_are_those_of_kfd_on_every_gpu_and_their_memory_is_the_devices(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 2, "CPX", "NPS4"))
    made.start(4711, (1, 3, 2048))
    made.start(4712)
    session = Session.open(tmp_path)
    assert [gpu.pids for gpu in session.survey()] == [((None, 4711), (None, 4712))] * 2
    idle, used = (session.read_device(gpu.uuid) for gpu in session.survey())
    assert (idle.rows, used.rows) == ((), ((4711, 2048 << 20, 3, used.rows[0].kind),))  # type: ignore[index]
    assert used.place_of(used.rows[0]) == "amdgpu_xcp_9"  # type: ignore[index]
    assert idle.places()[0] == "0000:05:00.0"
    made.end(4711)
    assert session.read_device(used.uuid).rows == ()


def test_a_device_of_a_gpu_with_another_mode_is_not_known_until_it_is_read_again(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 1, "SPX", "NPS1"))
    session = Session.open(tmp_path)
    uuid = session.survey()[0].uuid
    made.set_compute(0, "CPX")
    assert session.read_device(uuid).rows is None
    assert len(session.read_device(uuid).places()) == 8


def test_without_the_driver_there_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(DriverError) as none:
        Session.open(tmp_path)
    made = node(tmp_path, ("mi300x", 1, "SPX", "NPS1"))
    session = Session.open(tmp_path)
    made.unload()
    with pytest.raises(DriverError) as gone:
        session.survey()
    assert none.value.code == gone.value.code == Code.DRIVER_NOT_LOADED


@pytest.mark.parametrize(("compute", "memory", "devices"), [("SPX", "NPS1", 1), ("DPX", "NPS2", 2), ("CPX", "NPS4", 8)])
def test_an_unprivileged_container_sees_modes_and_processes_and_the_number_of_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compute: str, memory: str, devices: int
) -> None:
    made = node(tmp_path, ("mi300x", 2, compute, memory))
    made.start(4711, (1, 0, 2048))
    hide_nodes(monkeypatch)
    session = Session.open(tmp_path)
    first, second = session.survey()
    assert (first.fault, first.devices, second.pids) == (None, (), ((None, 4711),))
    assert first.modes is not None
    assert (first.modes.word, first.modes.devices) == (f"{compute}/{memory}", devices)
    assert session.read_device(second.uuid).rows is None, "a list that is not known is not empty"


def test_hidden_nodes_that_are_too_few_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = node(tmp_path, ("mi300x", 2, "CPX", "NPS4"))
    shutil.rmtree(made.node_folder(1, 7))
    hide_nodes(monkeypatch)
    for gpu in Session.open(tmp_path).survey():
        assert gpu.fault is not None
        assert "KFD lists 15 devices" in gpu.fault.detail


def _write(path: Path, text: str) -> int:
    return path.write_text(text)


BROKEN: dict[str, tuple[Callable[[FakeSysfs], object], str]] = {
    "no list of processes": (lambda made: (made.root / PROCESSES).rmdir(), "processes"),
    "a strange process": (lambda made: (made.root / PROCESSES / "x1").mkdir(), "x1"),
    "a node less": (lambda made: (made.node_folder(0, 7) / "properties").unlink(), "properties"),
    "no node": (lambda made: [_write(made.node_folder(0, part) / "gpu_id", "0") for part in range(8)], "does not list"),
    "another mode": (lambda made: _write(made.gpu_folder(0) / "current_compute_partition", "DPX"), "KFD lists 8 devices"),
    "no memory mode": (lambda made: (made.gpu_folder(0) / "current_memory_partition").unlink(), "current_memory_partition"),
    "an unknown mode": (lambda made: _write(made.gpu_folder(0) / "current_memory_partition", "UNKNOWN"), "UNKNOWN"),
    "a mode of a card without": (lambda made: (made.gpu_folder(0) / "current_compute_partition").unlink(), "cannot be divided"),
    "a device twice": (
        lambda made: _write(made.node_folder(0, 1) / "properties", (made.node_folder(0, 2) / "properties").read_text()),
        "twice",
    ),
    "no device file": (
        lambda made: (made.root / "devices/platform").rename(made.root / "elsewhere"),
        "no device of the driver",
    ),
    "no location": (lambda made: _write(made.node_folder(0, 1) / "properties", "simd_count 4"), "location_id"),
    "no memory": (lambda made: _write(made.gpu_folder(0) / "mem_info_vram_total", "?"), "mem_info_vram_total"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_absent_or_contradicts_itself_is_a_fault(tmp_path: Path, case: str) -> None:
    made = node(tmp_path, ("mi300x", 1, "CPX", "NPS4"))
    breaks, word = BROKEN[case]
    breaks(made)
    session = Session.open(tmp_path)
    [gpu] = session.survey()
    assert gpu.fault is not None
    assert gpu.fault.kind is FaultKind.UNREADABLE
    assert word in gpu.fault.detail
    assert session.read_device(gpu.uuid).rows is None


def test_nodes_of_a_gpu_that_the_driver_lacks_make_every_gpu_doubtful(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 2, "SPX", "NPS1"))
    made.gpu_folder(1).rename(tmp_path / "gone")
    [gpu] = Session.open(tmp_path).survey()
    assert gpu.fault is not None
    assert "0000:15:00.0" in gpu.fault.detail


def test_gpus_with_one_unique_id_are_not_told_apart(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 2, "SPX", "NPS1"))
    made.gpus[1].unique_id = made.gpus[0].unique_id
    made.load()
    found = Session.open(tmp_path).survey()
    assert all(gpu.fault is not None and "unique id" in gpu.fault.detail for gpu in found)
    assert len({gpu.uuid for gpu in found}) == 2


def test_a_process_whose_use_is_unreadable_has_an_unknown_use(tmp_path: Path) -> None:
    made = node(tmp_path, ("mi300x", 1, "SPX", "NPS1"))
    made.start(4711, (0, 0, 100))
    (tmp_path / PROCESSES / "4711" / f"vram_{made.gpu_id(0)}").write_text("")
    session = Session.open(tmp_path)
    rows = session.read_device(session.survey()[0].uuid).rows
    assert rows is not None
    assert [row.used_bytes for row in rows] == [None]


def test_what_amds_driver_does_not_have_is_not_supported(tmp_path: Path) -> None:
    node(tmp_path, ("mi300x", 1, "SPX", "NPS1"))
    session = Session.open(tmp_path)
    assert (session.has_memory_limits(), session.unreliable(), session.next_xid(1)) == (False, frozenset(), None)
    assert session.versions().driver
    for call in (
        lambda: session.reset_compute_mode("x"),
        lambda: session.memory_limit("x", "y"),
        lambda: session.set_memory_limit("x", "y", 1),
    ):
        with pytest.raises(DriverError) as error:
            call()
        assert error.value.code == Code.NOT_SUPPORTED
    assert (tmp_path / NODES).is_dir()
