"""The catalogue against the silicon: what the driver says of a card is what its file says."""

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session


def test_name_and_memory_are_the_catalogues(card: Card, whole: GpuInfo) -> None:
    print(card.id, whole.name, whole.pci_device_id, whole.memory_mib)
    assert whole.memory_mib == card.memory_mib
    assert (whole.mig is not None) == bool(card.profiles)


def test_mig_profiles_are_the_catalogues(card: Card, whole: GpuInfo, session: Session) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(whole.uuid)
    listed = dict(profiles(handle))
    print("\n".join(f"{name}: {info}" for name, info in listed.items()))
    if not listed:
        pytest.skip("this driver lists no MIG profile before MIG is on")
    assert [line for name, known in card.profiles.items() for line in differences(known, listed.get(name))] == []
    assert whole.mig is not None
    ours = {profile.name: {(place.start, place.size) for place in profile.placements} for profile in whole.mig.profiles}
    for name, known in card.profiles.items():
        if placements := ours.get(name):
            assert placements == {(place.start, place.size) for place in known.placements}, name


def profiles(handle: Any) -> Iterator[tuple[str, dict[str, int]]]:
    """The driver's own, by the name without `MIG`, each with its fields."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        name = info.name.decode() if isinstance(info.name, bytes) else info.name
        yield (
            name.removeprefix("MIG "),
            {field: getattr(info, field) for field, _ in info._fields_ if field not in {"name", "version"}},
        )


def differences(known: MigProfile, listed: dict[str, int] | None) -> Iterator[str]:
    """What the driver says otherwise of what the catalogue knows. Its memory is the smallest that was seen."""
    if listed is None:
        yield f"{known.name}: the driver lists none"
        return
    engines = known.engines
    facts = {
        "id": known.profile_id,
        "sliceCount": known.compute_slices,
        "instanceCount": known.max_count,
        "multiprocessorCount": known.sm,
        "copyEngineCount": engines.copy,
        "decoderCount": engines.decoders,
        "encoderCount": engines.encoders,
        "jpegCount": engines.jpeg,
        "ofaCount": engines.ofa,
    }
    for fact, value in facts.items():
        if value is not None and value != listed[fact]:
            yield f"{known.name}: {fact} is {listed[fact]}, in the catalogue {value}"
    if known.memory_mib is not None and known.memory_mib > listed["memorySizeMB"]:
        yield f"{known.name}: {listed['memorySizeMB']} MiB, less than the catalogue's {known.memory_mib} MiB"
