"""What the tests of written bundles share."""

import errno

import pytest

from gpushare.bundle.writer import exchange


def cannot_exchange(*_: object) -> None:
    raise OSError(errno.ENOSYS, "not here")


@pytest.fixture(params=["exchange", "in place"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of replacing a folder must do the same."""
    if request.param == "in place":
        monkeypatch.setattr(exchange, "_exchange", cannot_exchange)
    return str(request.param)
