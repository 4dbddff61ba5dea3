"""The authorizer of docs/token.md on a real API server: the runtime's token lists the pods of its own node, and no others."""

import re
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.control_plane import write_kubeconfig
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.test_admission import INTENT
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "token.md"


@pytest.fixture(scope="module")
def token(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The token of a runtime's pod on node-1, under that configuration."""
    folder = tmp_path_factory.mktemp("authorizer")
    write_kubeconfig(folder / "unreachable.kubeconfig", "https://127.0.0.1:1", "nobody")
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    configuration = folder / "authorization.yaml"
    configuration.write_text(shown.replace("/etc/kubernetes/unreachable.kubeconfig", str(folder / "unreachable.kubeconfig")))
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    namespace(cluster, "physics")
    objects = rendered(compiled(INTENT, folder / "bundle"))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "reader", "namespace": NAMESPACE},
            "spec": {
                "serviceAccountName": "gpushare-node",
                "nodeName": "node-1",
                "containers": [{"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}],
            },
        }
    )
    uid = cluster.get("pod", "reader", "--namespace", NAMESPACE)["metadata"]["uid"]
    cluster.control_plane.stop_api_server()
    cluster.control_plane.start_api_server(configuration)
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "reader", "--bound-object-uid", uid)
    yield cluster.kubectl("create", "token", "gpushare-node", "--namespace", NAMESPACE, *bound).strip()
    cluster.control_plane.stop_api_server()
    cluster.control_plane.start_api_server()
    cluster.kubectl("delete", "pod", "reader", "--namespace", NAMESPACE, "--ignore-not-found", "--grace-period=1")
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)


@pytest.mark.parametrize(
    ("query", "is_allowed"),
    [
        ("?fieldSelector=spec.nodeName%3Dnode-1", True),
        ("?fieldSelector=spec.nodeName%3Dnode-1,status.phase%3DRunning", True),
        ("?fieldSelector=spec.nodeName%3Dnode-2", False),
        ("?fieldSelector=spec.nodeName%21%3Dnode-2", False),
        ("?labelSelector=a%3Db", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("watch", ["", "watch=1&timeoutSeconds=1"])
def test_node_lists_only_its_own_pods(
    cluster: Cluster,
    token: str,
    query: str,
    is_allowed: bool,
    watch: str,
) -> None:
    path = "/api/v1/pods" + query + (("&" if query else "?") + watch if watch else "")
    said = cluster.control_plane.request("GET", path, "", "application/json", token).complaint
    assert (not said) is is_allowed, said
    if not is_allowed:
        # An authorizer that fails is no 403: the API server answers 500, in plain text, and does not do it.
        assert "Internal Server Error" in said


def test_other_permissions_are_unchanged(cluster: Cluster, token: str) -> None:
    for path in ("/api/v1/nodes/node-2", f"/api/v1/namespaces/{NAMESPACE}/pods/reader"):
        assert cluster.control_plane.request("GET", path, "", "application/json", token).complaint == ""
    assert cluster.get("pods", "--all-namespaces")["items"]
