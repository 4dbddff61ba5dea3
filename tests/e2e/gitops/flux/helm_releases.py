"""What helm-controller does with a HelmRelease, as its API says, by Helm's own program. The Go module proxy does not serve it.

`python -m tests.e2e.gitops.flux.helm_releases HELM KUBECTL ARTIFACTS`, with KUBECONFIG: ARTIFACTS is the folder of
source-controller, which packages the chart. What no bundle of ours has is left out: rollbacks, values in the release,
another cluster. So is the correction of differences.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

HELM, KUBECTL, ARTIFACTS = sys.argv[1:] if len(sys.argv) > 1 else ("", "", "")
_FINALIZER = "finalizers.fluxcd.io"
_RELEASES = ("helm.toolkit.fluxcd.io", "v2")
_CHARTS = ("source.toolkit.fluxcd.io", "v1")

Object = dict[str, Any]


class ActionError(Exception):
    """An action did not succeed. The text is that of the condition."""


class Release:
    """One HelmRelease, brought to what it says."""

    def __init__(self, item: Object) -> None:
        self.item = item
        self.spec: Object = item["spec"]
        self.name: str = item["metadata"]["name"]
        self.namespace: str = item["metadata"]["namespace"]
        self.api: Any = client.CustomObjectsApi()

    def reconcile(self) -> None:
        """One pass: its deletion, or one action of Helm and its conditions."""
        if self.spec.get("suspend") and "deletionTimestamp" not in self.item["metadata"]:
            return
        if "deletionTimestamp" in self.item["metadata"]:
            self._delete()
            return
        if _FINALIZER not in self.item["metadata"].get("finalizers", ()):
            self._patch({"metadata": {"finalizers": [_FINALIZER]}})
        try:
            self._await_dependencies()
            chart = self._chart()
            values = self._values()
            done = f"{chart.name} {hash(json.dumps(values, sort_keys=True))} {self.item['metadata']['generation']}"
            if _done.get(self._key) != done:
                self._tell("Ready", "Unknown", "Progressing", f"upgrades to {chart.name}")
                self._upgrade(chart, values)
                self._test()
                _done[self._key] = done
            self._tell("Ready", "True", "UpgradeSucceeded", f"release of {chart.name}")
        except ActionError as failure:
            self._tell("Ready", "False", "UpgradeFailed", str(failure))

    @property
    def _key(self) -> tuple[str, str]:
        return self.namespace, str(self.item["metadata"]["uid"])

    @property
    def _chart_name(self) -> str:
        return f"{self.namespace}-{self.name}"

    def _await_dependencies(self) -> None:
        for dependency in self.spec.get("dependsOn", ()):
            where = dependency.get("namespace", self.namespace)
            try:
                found: Object = self.api.get_namespaced_custom_object(*_RELEASES, where, "helmreleases", dependency["name"])
            except client.ApiException as error:
                raise ActionError(f"depends on {dependency['name']}: {error.reason}") from error
            conditions = found.get("status", {}).get("conditions", ())
            if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
                raise ActionError(f"depends on {dependency['name']}, which is not ready")

    def _chart(self) -> Path:
        """The package that source-controller makes of the chart, by a HelmChart that belongs to the release."""
        template = self.spec["chart"]["spec"]
        body: Object = {
            "apiVersion": "/".join(_CHARTS),
            "kind": "HelmChart",
            "metadata": {"name": self._chart_name},
            "spec": {"version": "*", "interval": self.spec["interval"], **template},
        }
        where = (*_CHARTS, self.namespace, "helmcharts")
        try:
            found: Object = self.api.get_namespaced_custom_object(*where, self._chart_name)
        except client.ApiException:
            found = self.api.create_namespaced_custom_object(*where, body)
        if any(found["spec"].get(key) != value for key, value in body["spec"].items()):
            found = self.api.patch_namespaced_custom_object(*where, self._chart_name, {"spec": body["spec"]})
        status = found.get("status", {})
        conditions = [one for one in status.get("conditions", ()) if one["type"] == "Ready"]
        if status.get("observedGeneration") != found["metadata"]["generation"] or not any(
            one["status"] == "True" for one in conditions
        ):
            raise ActionError(f"its HelmChart is not ready: {' '.join(one['message'] for one in conditions)}")
        return Path(ARTIFACTS, status["artifact"]["path"])

    def _values(self) -> Object:
        """The values, of which no bundle of ours has more than one source."""
        values: Object = {}
        for source in self.spec.get("valuesFrom", ()):
            found = client.CoreV1Api().read_namespaced_config_map(source["name"], self.namespace)
            values = yaml.safe_load((found.data or {})[source["valuesKey"]])
        return values

    def _upgrade(self, chart: Path, values: Object) -> None:
        installs, upgrades = self.spec.get("install", {}), self.spec.get("upgrade", {})
        is_new = self._helm("status", self.spec["releaseName"], check=False).returncode != 0
        if upgrades.get("crds") == "CreateReplace":
            definitions = self._helm("show", "crds", str(chart)).stdout
            if definitions.strip():
                self._run(KUBECTL, "apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=definitions)
        action = installs if is_new else upgrades
        arguments = ["--timeout", self.spec["timeout"], "--values", "-", "--skip-crds"]
        if action.get("serverSideApply") in {False, "disabled"}:
            arguments.append("--server-side=false")
        if not action.get("disableWait"):
            arguments.append("--wait")
        self._helm("upgrade", "--install", self.spec["releaseName"], str(chart), *arguments, stdin=json.dumps(values))

    def _test(self) -> None:
        test = self.spec.get("test", {})
        if test.get("enable"):
            done = self._helm("test", self.spec["releaseName"], "--timeout", test["timeout"], check=False)
            self._tell("TestSuccess", str(done.returncode == 0), "TestSucceeded", done.stderr[-1000:])
            if done.returncode and not test.get("ignoreActionErrors"):
                raise ActionError(f"its test failed: {done.stderr}")

    def _delete(self) -> None:
        """Uninstall it and let the object go. A suspended release goes without."""
        try:
            if not self.spec.get("suspend"):
                arguments = ("--ignore-not-found", "--wait", "--timeout", self.spec["timeout"])
                self._helm("uninstall", self.spec["releaseName"], *arguments)
        except ActionError as failure:
            self._tell("Ready", "False", "UninstallFailed", str(failure))
            return
        with contextlib.suppress(client.ApiException):
            self.api.delete_namespaced_custom_object(*_CHARTS, self.namespace, "helmcharts", self._chart_name)
        self._patch({"metadata": {"finalizers": None}})

    def _tell(self, kind: str, status: str, reason: str, message: str) -> None:
        """Write a condition, if it says something else than before."""
        where = (*_RELEASES, self.namespace, "helmreleases", self.name)
        told = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:1000],
            "observedGeneration": self.item["metadata"]["generation"],
        }
        with contextlib.suppress(client.ApiException):
            item: Object = self.api.get_namespaced_custom_object(*where)
            conditions = item.get("status", {}).get("conditions", [])
            if any(told.items() <= one.items() for one in conditions):
                return
            others = [one for one in conditions if one["type"] != kind]
            moment = {"lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            status_of_all = {"conditions": [*others, told | moment], "observedGeneration": told["observedGeneration"]}
            self.api.patch_namespaced_custom_object_status(*where, {"status": status_of_all})

    def _patch(self, body: Object) -> None:
        self.api.patch_namespaced_custom_object(*_RELEASES, self.namespace, "helmreleases", self.name, body)

    def _helm(self, *arguments: str, stdin: str = "", check: bool = True) -> "subprocess.CompletedProcess[str]":
        where = ("--namespace", self.spec["storageNamespace"]) if arguments[0] != "show" else ()
        return self._run(HELM, *arguments, *where, stdin=stdin, check=check)

    def _run(self, *command: str, stdin: str = "", check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        print(" ".join(command[1:]), done.returncode, done.stderr, flush=True)
        if check and done.returncode:
            raise ActionError(done.stderr.strip())
        return done


_done: dict[tuple[str, str], str] = {}
"""What Helm was given last, by the release."""


def _pass(item: Object) -> None:
    try:
        Release(item).reconcile()
    except Exception:  # The next pass tries again, as a controller does.
        traceback.print_exc()


def main() -> None:
    """Reconcile every release again and again, each in a thread of its own."""
    config.load_kube_config()
    running: dict[str, threading.Thread] = {}
    while True:
        with contextlib.suppress(client.ApiException, HTTPError):
            api: Any = client.CustomObjectsApi()
            for item in api.list_cluster_custom_object(*_RELEASES, "helmreleases")["items"]:
                key = item["metadata"]["uid"]
                if key not in running or not running[key].is_alive():
                    running[key] = threading.Thread(target=_pass, args=(item,), daemon=True)
                    running[key].start()
        time.sleep(1)


if __name__ == "__main__":
    main()
