"""`export`: what is on the hardware, placements included, as YAML that people read and compare, or as JSON. Changes nothing."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from gpushare_node.cli.run import Exit, Run
from gpushare_node.cli.wiring import bounded_driver
from gpushare_node.gpus.steps import names_of
from gpushare_node.vendors.driver import GpuInfo, GpuInstance, Versions


def export(run: Run) -> int:
    """Print the document. DriverError if the driver does not answer; exit code 1 if there is no GPU at all."""
    driver = bounded_driver(run, None)()
    try:
        document = describe(driver.versions(), driver.survey())
    finally:
        driver.close()
    sys.stdout.write(write(document, run.arguments.format))
    sys.stdout.flush()
    if not document["gpus"]:
        logging.getLogger(__name__).error("no GPU found")
        return Exit.FAILED
    return Exit.DONE


def describe(versions: Versions, surveys: Iterable[GpuInfo]) -> dict[str, Any]:
    """Return the document. Everything in it is as the driver reports it; processes are counted, not named."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "NodeState",
        "driver": {"version": versions.driver, "nvml": versions.nvml or None, "cuda": versions.cuda},
        "gpus": [_gpu(survey) for survey in sorted(surveys, key=lambda one: one.index)],
    }


def write(document: dict[str, Any], form: str) -> str:
    """Return the document as text, `yaml` or `json`."""
    if form == "json":
        return json.dumps(document, indent=1, ensure_ascii=True) + "\n"
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=120)


def _gpu(survey: GpuInfo) -> dict[str, Any]:
    head = {"index": survey.index, "uuid": survey.uuid}
    if survey.fault is not None:
        return {**head, "fault": {"kind": survey.fault.kind.value, "detail": survey.fault.detail}}
    on_instances = Counter(gi for gi, _ in set(survey.pids))
    return {
        **head,
        "name": survey.name,
        "pciDeviceId": survey.pci_device_id,
        "pciBusId": survey.pci_bus_id,
        "memoryMiB": survey.memory_mib,
        "computeMode": None if survey.compute_mode is None else survey.compute_mode.name.lower().replace("_", "-"),
        "processes": on_instances[None],
        "mig": _mig(survey, on_instances),
        **_devices(survey),
    }


def _devices(survey: GpuInfo) -> dict[str, Any]:
    """Return the modes and devices of an AMD GPU; nothing for another."""
    if not survey.devices:
        return {}
    modes = survey.modes
    return {
        "partition": None if modes is None else {"compute": modes.compute, "memory": modes.memory},
        "devices": [{"id": device.id, "memoryMiB": device.memory_mib} for device in survey.devices],
    }


def _mig(survey: GpuInfo, processes: Counter[int | None]) -> dict[str, Any] | None:
    if survey.mig is None:
        return None
    known = names_of(survey)
    placed = sorted(survey.mig.instances, key=lambda one: (one.start, one.gi_id))
    return {
        "enabled": survey.mig.current,
        "pending": survey.mig.pending,
        "instances": [_instance(one, known, processes[one.gi_id]) for one in placed],
    }


def _instance(one: GpuInstance, known: Mapping[int, str], processes: int) -> dict[str, Any]:
    return {
        "profile": known.get(one.profile_id),
        "profileId": one.profile_id,
        "start": one.start,
        "size": one.size,
        "gpuInstance": one.gi_id,
        "processes": processes,
        "devices": [{"computeInstance": ci.ci_id, "uuid": ci.uuid, "whole": ci.is_whole} for ci in one.compute],
    }
