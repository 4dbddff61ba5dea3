"""What users of DRA have on a cluster: classes of devices, templates of claims, and pods that use them."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.cluster.cluster_fixture import COURSE
from tests.e2e.cluster.dra.devices import DRIVER, Object
from tests.e2e.cluster.images import TENANT

API = "resource.k8s.io/v1"


def device_class(name: str, product: str, profile: str = "", extended: str = "") -> Object:
    """A class of whole GPUs of this product, or of MIG devices of this profile; `extended`: the name by which limits ask."""
    attributes = f"device.attributes['{DRIVER}']"
    conditions = [f"device.driver == '{DRIVER}'", f"{attributes}.productName == '{product}'"]
    conditions += [f"{attributes}.type == '{'mig' if profile else 'gpu'}'"]
    conditions += [f"{attributes}.profile == '{profile}'"] if profile else []
    spec: Object = {"selectors": [{"cel": {"expression": " && ".join(conditions)}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def template(name: str, *alternatives: Object, where: str = COURSE) -> Object:
    """A template of claims for one device, or for the first of several that there is."""
    if len(alternatives) == 1:
        request: Object = {"name": "gpu", "exactly": alternatives[0]}
    else:
        named = [{"name": f"at-{number}", **one} for number, one in enumerate(alternatives)]
        request = {"name": "gpu", "firstAvailable": named}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name, "namespace": where}, "spec": spec}


def asked(of: str, **capacity: str) -> Object:
    """A device of the class, or so much of it."""
    return {"deviceClassName": of, **({"capacity": {"requests": capacity}} if capacity else {})}


def claiming(template: str) -> Object:
    """Fields of the specification of a pod whose container `work` has a claim from the template."""
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}]}


def tenant(name: str, of: str, *arguments: str, node: str = "", where: str = COURSE, **spec: Any) -> Object:
    """A pod with a claim from the template `of`, which holds GPU memory as the arguments say."""
    container = {
        "name": "work",
        "image": TENANT,
        "imagePullPolicy": "Never",
        "args": [*arguments],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    selector: Mapping[str, str] = {"kubernetes.io/hostname": node} if node else {}
    pod = {
        "containers": [container],
        "nodeSelector": selector,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        **claiming(of),
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": where}, "spec": pod}
