"""How the fields of DRA are read, and that an intent without them keeps its digest."""

from typing import Any

import pytest

from gpushare.core import emit
from gpushare.intent import reader, writer
from gpushare.intent.types import Dra, DraVia, Intent, Requests
from gpushare_node.contract.policy import Backend, DraShares
from tests.compiler.intent.texts import found, intent, pool


def read(platform: dict[str, Any] | None = None, **fields: Any) -> Intent:
    """The intent of one pool with these fields."""
    sharing = {"mode": "time-slicing", "replicas": 4}
    one = {"card": "t4", "nodes": {"matchLabels": {"a": "b"}}, "gpusPerNode": 1, "sharing": sharing}
    spec = {"pools": {"p": one | fields}} | ({} if platform is None else {"platform": platform})
    return reader.build({"metadata": {"name": "c"}, "spec": spec})


def digest(one: Intent) -> str:
    return emit.canonical_json(writer.write(writer.canonical(one)))


def test_a_pool_without_the_fields_has_the_device_plugin() -> None:
    one = read()
    assert (one.pools[0].backend, one.pools[0].requests, one.pools[0].sizes) == (Backend.DEVICE_PLUGIN, Requests.CLAIMS, ())
    assert one.platform.dra is None


def test_a_pool_has_the_back_end_of_the_platform_unless_it_names_its_own() -> None:
    assert read({"backend": "dra"}).pools[0].backend is Backend.DRA
    assert read({"backend": "dra"}, backend="device-plugin").pools[0].backend is Backend.DEVICE_PLUGIN
    assert read(backend="dra").pools[0].backend is Backend.DRA


def test_fields_of_the_driver_have_defaults() -> None:
    assert read({"dra": {}}).platform.dra == Dra(via=DraVia.CHART, version=None, shares=DraShares.MEMORY, driver_root="/")
    written = {"via": "existing", "version": "0.5.0", "shares": "count", "driverRoot": "/run/nvidia/driver"}
    assert read({"dra": written}).platform.dra == Dra(
        via=DraVia.EXISTING, version="0.5.0", shares=DraShares.COUNT, driver_root="/run/nvidia/driver"
    )


def test_sizes_are_bytes_in_the_order_of_the_user() -> None:
    assert read(sizes={"large": "7680Mi", "half": "1G"}).pools[0].sizes == (("large", 7680 << 20), ("half", 10**9))


def test_written_defaults_do_not_change_the_digest() -> None:
    assert digest(read({"backend": "device-plugin"}, backend="device-plugin", requests="claims")) == digest(read())


@pytest.mark.parametrize(
    "other",
    [
        read(backend="dra"),
        read(requests="both"),
        read(sizes={"large": "7680Mi"}),
        read(sharing={"mode": "time-slicing", "replicas": 4, "interval": "short"}),
        read({"dra": {}}),
        read({"dra": {"shares": "count"}}),
    ],
    ids=str,
)
def test_each_field_changes_the_digest(other: Intent) -> None:
    assert digest(other) != digest(read())


def test_the_order_of_sizes_and_where_the_back_end_is_written_have_no_meaning() -> None:
    sizes = {"large": "7680Mi", "half": "1G"}
    assert digest(read(sizes=sizes)) == digest(read(sizes=dict(reversed(sizes.items()))))
    assert digest(read({"backend": "dra"})) == digest(read(backend="dra"))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (intent(pool(), platform="{backend: plugin}"), "GS104 5:23-29"),
        (intent(pool(), platform="{dra: {via: operator}}"), "GS104 5:25-33"),
        (intent(pool(), platform="{dra: {shares: 4}}"), "GS104 5:28-29"),
        (intent(pool(), platform="{dra: {driverRoot: run}}"), "GS105 5:32-35"),
        (intent(pool(), platform="{dra: {driverRoot: '/run/'}}"), "GS105 5:32-39"),
        (intent(pool(), platform="{dra: {interval: short}}"), "GS102 5:20-28"),
        (intent(pool(backend="nvidia")), "GS104 11:16-22"),
        (intent(pool(requests="both-ways")), "GS104 11:17-26"),
        (intent(pool(sizes="{}")), "GS107 11:14-16"),
        (intent(pool(sizes="{large: 0}")), "GS106 11:22-23"),
        (intent(pool(sizes="{large: 50%}")), "GS105 11:22-25"),
        (intent(pool("{mode: time-slicing, replicas: 4, interval: 5ms}")), "GS104 10:60-63"),
    ],
)
def test_words_and_forms_that_the_schema_refuses(text: str, places: str) -> None:
    assert found(text) == places
