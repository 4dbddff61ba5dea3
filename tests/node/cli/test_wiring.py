"""What a policy chooses: its back end."""

import pytest

from gpushare_node.cli import wiring
from gpushare_node.core.policy import Backend
from gpushare_node.core.structs import replace
from tests.node.reconcile.loop_node import whole


@pytest.mark.parametrize("backend", Backend)
def test_every_back_end_of_a_policy_is_implemented(backend: Backend) -> None:
    assert wiring.backend_of(replace(whole(), backend=backend)).advertised({"nvidia.com/gpu": 1}) == {"nvidia.com/gpu": 1}


def test_a_back_end_without_an_implementation_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_BACKENDS", {})
    with pytest.raises(NotImplementedError, match="back end device-plugin"):
        wiring.backend_of(whole())
