"""A real driver's session, and one whole GPU. What is off with the machine fails here, in words: nothing is skipped."""

from collections.abc import Iterator

import pytest

from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.e2e.gpu.calls import Calls
from tests.support.process_fixtures import ProcessPool, open_process_pool


class OneGpu:
    """What a node for enforcement's tests must know of its GPUs."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def uuid(self, _gpu: int) -> str:
        return self._uuid


@pytest.fixture
def process_pool() -> Iterator[ProcessPool]:
    with open_process_pool() as everyone:
        yield everyone


@pytest.fixture(scope="module")
def calls() -> Calls:
    return Calls()


@pytest.fixture(scope="module")
def session(calls: Calls) -> Iterator[Session]:
    made = Session.open(calls.observe)
    yield made
    made.close()


@pytest.fixture(scope="module")
def surveys(session: Session) -> tuple[GpuInfo, ...]:
    found = session.survey()
    assert found, "the driver shows no GPU"
    assert [survey.fault for survey in found] == [None] * len(found)
    return found


@pytest.fixture(scope="module")
def whole(surveys: tuple[GpuInfo, ...]) -> GpuInfo:
    """A GPU that is not under MIG. Its mode is not ours to change."""
    found = [survey for survey in surveys if survey.mig is None or not survey.mig.current]
    assert found, "every GPU here is under MIG; these tests take a whole one"
    return found[0]


@pytest.fixture(scope="module")
def card(whole: GpuInfo) -> Card:
    """The catalogue's card that this GPU is."""
    known = [one for one in map(cards.load, cards.ids()) if whole.pci_device_id in one.pci_device_ids]
    found = [one for one in known if whole.name in (one.name, *one.name_aliases)]
    ids = [one.id for one in known]
    assert len(found) == 1, (
        f"{whole.name} with PCI ids {whole.pci_device_id} is no single card of the catalogue; by PCI ids: {ids}"
    )
    return found[0]
