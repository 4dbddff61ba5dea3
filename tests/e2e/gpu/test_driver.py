"""A real driver through our session, read only: everything is told, it agrees with itself, and what it takes is printed."""

import time

import pytest

from gpushare_node.guard.process_list import RejectReason, validate
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.e2e.gpu.calls import Calls, percentile

ROUNDS = 300


def test_driver_reports_its_versions(session: Session) -> None:
    versions = session.versions()
    print(versions)
    assert int(versions.driver.split(".")[0]) >= 450
    assert versions.nvml.partition(".")[2].startswith(versions.driver.split(".")[0])
    assert versions.cuda is not None


def test_every_gpu_reports_the_data_for_a_plan(surveys: tuple[GpuInfo, ...]) -> None:
    for survey in surveys:
        print(survey)
        assert survey.uuid.startswith("GPU-")
        assert survey.name.startswith(("NVIDIA", "Tesla", "GRID", "Quadro"))
        assert survey.pci_device_id is not None
        assert survey.pci_device_id.endswith("10DE"), "NVIDIA's number among PCI vendors"
        assert survey.pci_bus_id
        assert survey.memory_mib
        assert survey.compute_mode is not None


def test_the_census_is_plausible_and_agrees_with_the_survey(session: Session, surveys: tuple[GpuInfo, ...]) -> None:
    for survey in surveys:
        device = session.read_device(survey.uuid)
        print(device)
        sifted = validate(device)
        assert not isinstance(sifted, RejectReason), sifted.value
        if device.instances is None:
            assert device.total_bytes is not None
            assert device.used_bytes is not None
            assert device.total_bytes >> 20 == survey.memory_mib
            assert 0 <= device.used_bytes <= device.total_bytes
        else:
            assert survey.mig is not None
            assert set(device.instances) == {instance.gi_id for instance in survey.mig.instances if instance.compute}
    assert session.unreliable() == frozenset(), "this driver may scramble its process lists"


def test_time_to_read_all_gpus_is_printed(
    session: Session, surveys: tuple[GpuInfo, ...], calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    uuids = [survey.uuid for survey in surveys]
    for uuid in uuids:
        session.read_device(uuid)
    calls.forget()
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for uuid in uuids:
            session.read_device(uuid)
        taken.append(time.perf_counter() - began)
    p50, p99 = percentile(taken, 50), percentile(taken, 99)
    with capsys.disabled():
        print(f"\ncensus of {len(uuids)} × {surveys[0].name}: p50 {p50:.3f} ms, p99 {p99:.3f} ms\n{calls.table()}")
    assert all(session.read_device(uuid).rows is not None for uuid in uuids)


def test_reading_changes_nothing(session: Session, surveys: tuple[GpuInfo, ...], calls: Calls) -> None:
    for survey in session.survey():
        session.read_device(survey.uuid)
    assert calls.changes() == []
    assert [(one.uuid, one.mig, one.compute_mode) for one in session.survey()] == [
        (one.uuid, one.mig, one.compute_mode) for one in surveys
    ]
