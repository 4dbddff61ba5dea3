"""Evictions: the budget is asked by a dry run, the pod deleted by its uid; what each answer of the API server means."""

import pytest

from gpushare_node.adapters.kube.cluster import ClusterError, Eviction, PodView
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.node_client import RECOUNT_SECONDS, EvictionClient
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.contract.struct import replace
from tests.node.adapters.kube.kube_fixture import FakeClock
from tests.support.fake_api.server import ApiServer

EVICTION, POD = "/api/v1/namespaces/default/pods/p/eviction", "/api/v1/namespaces/default/pods/p"


@pytest.fixture
def evictions(connection: Connection, clock: FakeClock) -> EvictionClient:
    return EvictionClient(connection, clock)


def pod(api: ApiServer, name: str = "p", namespace: str = "default") -> PodView:
    return view_pod(api.add_pod(name, namespace=namespace, node="n1"))


def test_budget_is_checked_by_a_dry_run_and_the_pod_is_deleted_by_uid(api: ApiServer, evictions: EvictionClient) -> None:
    one = pod(api)
    assert evictions.evict(one) is Eviction.EVICTED
    assert api.all("pods") == []
    assert [(method, path.partition("?")[0]) for method, path in api.requests] == [("POST", EVICTION), ("DELETE", POD)]
    assert [body.get("deleteOptions", body) for body in api.bodies] == [{"preconditions": {"uid": one.uids[0]}}] * 2


STATUS = f"{POD}/status"


def conditions(api: ApiServer) -> dict[str, dict[str, str]]:
    return {one["type"]: one for one in api.get("pods", "p", namespace="default")["status"].get("conditions") or ()}


def test_a_moved_pod_is_told_before_its_budget_is_asked(api: ApiServer, evictions: EvictionClient) -> None:
    api.lingers = True
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-28T00:00:00Z"}
    made = api.add_pod("p", node="n1")
    api.edit("pods", "p", lambda one: one["status"].update(conditions=[dict(ready)]), namespace="default")
    assert evictions.evict(view_pod(made), is_moved=True) is Eviction.EVICTED
    steps = [("PATCH", STATUS), ("POST", EVICTION), ("DELETE", POD)]
    assert [(method, path.partition("?")[0]) for method, path in api.requests] == steps
    found = conditions(api)
    assert found["Ready"] == ready
    told = found["DisruptionTarget"]
    assert (told["status"], told["reason"]) == ("True", "GPUShareRepartitioning")
    assert api.get("pods", "p", namespace="default")["metadata"]["deletionTimestamp"]


def test_a_pod_that_another_program_moves_keeps_its_condition(api: ApiServer, evictions: EvictionClient) -> None:
    api.lingers = True
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    made = api.add_pod("p", node="n1")
    made["status"]["conditions"] = [theirs]
    api.edit("pods", "p", lambda one: one["status"].update(conditions=[dict(theirs)]), namespace="default")
    assert evictions.evict(view_pod(made), is_moved=True) is Eviction.EVICTED
    assert conditions(api)["DisruptionTarget"] == theirs


def test_a_condition_that_kubernetes_took_back_is_set_again(api: ApiServer, evictions: EvictionClient) -> None:
    """After two minutes without a deletion, because a budget refused it."""
    api.eviction_budget = 0
    one = pod(api)
    assert evictions.evict(one, is_moved=True) is Eviction.REFUSED
    api.edit("pods", "p", lambda one: one["status"]["conditions"][0].update(status="False"), namespace="default")
    assert evictions.evict(one, is_moved=True) is Eviction.REFUSED
    assert conditions(api)["DisruptionTarget"]["status"] == "True"


def test_a_pod_of_the_same_name_is_told_nothing(api: ApiServer, evictions: EvictionClient) -> None:
    one = pod(api)
    api.remove("pods", "p", namespace="default")
    assert evictions.evict(one, is_moved=True) is Eviction.GONE
    pod(api)
    assert evictions.evict(one, is_moved=True) is Eviction.GONE
    assert conditions(api) == {}


def test_a_pod_that_may_not_be_told_is_moved_all_the_same(api: ApiServer, evictions: EvictionClient) -> None:
    """Else another program's policy would keep the node out of service; the log says what the pod's Job sees."""
    api.fail("PATCH", 403)
    assert evictions.evict(pod(api), is_moved=True) is Eviction.EVICTED
    assert api.all("pods") == []


def test_who_is_ended_for_its_cap_is_not_told_that_it_is_moved(api: ApiServer, evictions: EvictionClient) -> None:
    api.lingers = True
    assert evictions.evict(pod(api), is_forced=True) is Eviction.EVICTED
    assert conditions(api) == {}


def test_an_eviction_that_a_budget_refuses_is_not_repeated_by_itself(api: ApiServer, evictions: EvictionClient) -> None:
    one = pod(api)
    api.eviction_budget = 0
    assert evictions.evict(one) is Eviction.REFUSED
    assert len(api.requests) == 1
    api.eviction_budget = 1
    assert evictions.evict(one) is Eviction.EVICTED


def test_new_pod_with_the_same_name_is_not_evicted(api: ApiServer, evictions: EvictionClient) -> None:
    one = pod(api)
    api.remove("pods", "p", namespace="default")
    assert evictions.evict(one) is Eviction.GONE
    pod(api)
    assert evictions.evict(one) is Eviction.GONE
    assert len(api.all("pods")) == 1


@pytest.mark.parametrize("step", ["POST", "DELETE"])
@pytest.mark.parametrize(("status", "answer"), [(403, Eviction.FORBIDDEN), (429, Eviction.THROTTLED)])
def test_forbidden_and_throttled_evictions_differ_from_a_budget_refusal(
    api: ApiServer,
    evictions: EvictionClient,
    step: str,
    status: int,
    answer: Eviction,
) -> None:
    one = pod(api)
    api.fail(step, status, times=-1)
    assert evictions.evict(one) is answer
    assert len(api.all("pods")) == 1


def test_unreachable_server_raises_an_error_instead_of_an_eviction_result(api: ApiServer, evictions: EvictionClient) -> None:
    one = pod(api)
    api.down()
    with pytest.raises(ClusterError):
        evictions.evict(one)


def test_next_eviction_waits_until_the_budget_has_counted_the_last_deletion(
    api: ApiServer,
    evictions: EvictionClient,
    clock: FakeClock,
) -> None:
    """It does not count dry runs: two pods of one budget of 1 would both go in the same moment."""
    pods = [pod(api, "p"), pod(api, "q"), pod(api, "r", "elsewhere")]
    assert [evictions.evict(one) for one in pods] == [Eviction.EVICTED, Eviction.THROTTLED, Eviction.EVICTED]
    clock.sleep(RECOUNT_SECONDS)
    api.eviction_budget = 0
    assert evictions.evict(replace(pods[1])) is Eviction.REFUSED


def test_forced_eviction_deletes_without_checking_the_budget(api: ApiServer, evictions: EvictionClient) -> None:
    api.eviction_budget = 0
    one, other = pod(api), pod(api, "q")
    assert evictions.evict(one, is_forced=True) is Eviction.EVICTED
    assert evictions.evict(other, is_forced=True) is Eviction.EVICTED
    assert [method for method, _ in api.requests] == ["DELETE", "DELETE"]
