"""Tenancy: the tenant and platform namespaces of the whole cluster, and its format (kind Tenancy, version 1).

One text for all pools, in JSON: it changes with every namespace that gets GPUs, without a restart of any pod, and may list
thousands of namespaces. Reads no files.
"""

import json
from enum import StrEnum
from typing import Any

from gpushare_node.contract.strict_document import Field, PolicyError
from gpushare_node.contract.struct import Struct, field, replace

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


class _ApiVersion(StrEnum):
    V1 = "gpushare.dev/v1"


class _Kind(StrEnum):
    TENANCY = "Tenancy"


class AdmissionScope(StrEnum):
    """The pods that admission covers: those of tenants, or those of every namespace but the platform's."""

    TENANTS = "tenants"
    CLUSTER = "cluster"


class AdmissionMode(StrEnum):
    """What admission does with a pod that breaks the rules of sharing."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    NONE = "none"


class Tenancy(Struct):
    """`ignored` are paths of fields that a newer chart wrote and that this runtime does not know."""

    scope: AdmissionScope = AdmissionScope.TENANTS
    admission: AdmissionMode = AdmissionMode.NONE
    platform_namespaces: frozenset[str] = frozenset()
    tenant_namespaces: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def platform(self) -> frozenset[str]:
        """Return the namespaces of the platform's own pods."""
        return self.platform_namespaces | {"kube-system"}

    def has_tenant(self, namespace: str, *, holds_share: bool) -> bool:
        """Whether a pod of this namespace, which is not the platform's, is a tenant. Admission uses the same definition."""
        return holds_share or self.scope is AdmissionScope.CLUSTER or namespace in self.tenant_namespaces


UNKNOWN = Tenancy()
"""The tenancy in force until one is read: without a mode in which admission refuses pods, no container is a stray."""


def document(tenancy: Tenancy) -> dict[str, Any]:
    """Return what `read` reads this tenancy from, with sorted lists."""
    spec = {
        "scope": tenancy.scope.value,
        "admission": tenancy.admission.value,
        "platformNamespaces": sorted(tenancy.platform_namespaces),
        "tenantNamespaces": sorted(tenancy.tenant_namespaces),
    }
    return {"apiVersion": _ApiVersion.V1.value, "kind": _Kind.TENANCY.value, "spec": spec}


def read(text: str) -> Tenancy:
    """Return the tenancy in this text. PolicyError, with the path inside the document, if it is not a valid tenancy.

    Unknown fields are ignored, as in a policy.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError((), f"is not JSON: {error}") from error
    ignored: list[str] = []
    whole = Field(value=document, ignored=ignored).fields("apiVersion", "kind", "spec")
    whole["apiVersion"].enum(_ApiVersion)
    whole["kind"].enum(_Kind)
    spec = whole["spec"].fields("scope", "admission", "platformNamespaces", "tenantNamespaces")
    tenancy = Tenancy(
        scope=spec["scope"].enum(AdmissionScope),
        admission=spec["admission"].enum(AdmissionMode),
        platform_namespaces=_names(spec["platformNamespaces"]),
        tenant_namespaces=_names(spec["tenantNamespaces"]),
    )
    return replace(tenancy, ignored=tuple(ignored))


def _names(value: Field) -> frozenset[str]:
    return frozenset(item.text(_LABEL) for item in value.items())
