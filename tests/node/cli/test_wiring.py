"""What a policy chooses: its back end, and its vendor's names."""

import pytest

from gpushare_node import vendors
from gpushare_node.cli import wiring
from gpushare_node.contract.policy import Backend, Vendor
from gpushare_node.contract.struct import replace
from tests.node.reconcile.loop_node import whole


@pytest.mark.parametrize("backend", Backend)
def test_every_back_end_of_a_policy_is_implemented(backend: Backend) -> None:
    assert wiring.backend_of(replace(whole(), backend=backend)).advertised({"nvidia.com/gpu": 1}) == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize("vendor", Vendor)
def test_every_vendor_of_a_policy_is_implemented(vendor: Vendor) -> None:
    assert vendors.of(vendor).gpu_resources
