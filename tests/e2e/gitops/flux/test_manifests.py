"""kustomize-controller applies what `compile --manifests` prints, from a folder of the repository. In this order."""

from pathlib import Path
from typing import Any

from tests.compiler.cli.process import gpushare
from tests.e2e.cluster.bundles import NAMESPACE, namespace
from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED
from tests.e2e.gitops.flux.controllers import NAMESPACE as FLUX
from tests.e2e.gitops.flux.synced import Synced

NAME, FOLDER = "plain", "plain"


def commit(synced: Synced, pool: str, folder: Path) -> str:
    """Commit the objects of a bundle with one pool, as the page says: the bundle's lock knows the former profiles."""
    bundle = synced.cluster_fixture.compile(synced.intent(notebooks=pool).partition("  gitops:")[0])
    printed = gpushare("compile", "--manifests", bundle.parent / "intent.yaml", "-o", bundle)
    assert printed.returncode == 0, printed.stderr
    folder.mkdir(exist_ok=True)
    (folder / "objects.yaml").write_text(printed.stdout)
    return synced.repository.commit(folder, FOLDER)


def objects(synced: Synced) -> tuple[dict[str, Any], ...]:
    """What a person applies once."""
    metadata = {"name": NAME, "namespace": FLUX}
    source = {"interval": "5s", "url": synced.flux.address("gpu"), "ref": {"branch": "main"}}
    sync = {
        "interval": "1m", "timeout": "5m", "path": f"./{FOLDER}", "prune": True, "wait": True,
        "sourceRef": {"kind": "GitRepository", "name": NAME},
    }
    return (
        {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata, "spec": source},
        {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata, "spec": sync},
    )


def test_the_kustomization_is_ready_when_the_node_is(synced: Synced, tmp_path: Path) -> None:
    synced.cluster_fixture.choose(node_1="notebooks", node_2=None)
    first = commit(synced, NOTEBOOKS, tmp_path / "plain")
    synced.cluster.apply(*objects(synced))
    synced.flux.await_commit(NAME, first)
    # No wait: Ready means this.
    assert synced.cluster_fixture.is_ready("node-1")
    synced.cluster_fixture.await_offer("node-1", "notebooks")
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 8}, "node-1 offers 8 shares")
    second = commit(synced, NOTEBOOKS.replace("replicas: 4", "replicas: 6"), tmp_path / "plain")
    synced.flux.await_commit(NAME, second)
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")


def test_nodes_that_leave_their_pool_first_are_released_and_the_deletion_leaves_nothing(synced: Synced) -> None:
    synced.cluster_fixture.choose(node_1=None)
    # By an order: without one the node waits for five minutes whether the label comes back.
    synced.cluster.kubectl("annotate", "node", "node-1", "gpushare.dev/retry=now")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    synced.cluster.kubectl("delete", "kustomization", NAME, "--namespace", FLUX)
    synced.cluster.kubectl("delete", "gitrepository", NAME, "--namespace", FLUX)
    space = f"/api/v1/namespaces/{NAMESPACE}"
    synced.cluster.wait(lambda: synced.cluster.read(space) is None, "the namespace is gone with everything in it")
    assert synced.cluster_fixture.traces() == []
    namespace(synced.cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
