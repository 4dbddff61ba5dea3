"""Tenancy: who is a tenant and who is the platform on the whole cluster (the form Tenancy, version 1), and its reader.

One text for all pools, in JSON: it changes with every namespace that gets GPUs, restarts nobody, and may name thousands. Owns
the form on the node's side. Reads no files.
"""

import json
import re
from enum import StrEnum

from gpushare_node.core.strict_document import Field, PolicyError
from gpushare_node.core.structs import Struct, field, replace

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class _ApiVersion(StrEnum):
    V1 = "gpushare.dev/v1"


class _Kind(StrEnum):
    TENANCY = "Tenancy"


class Scope(StrEnum):
    """Whose pods admission refuses: those of tenants, or those of every namespace but the platform's."""

    TENANTS = "tenants"
    CLUSTER = "cluster"


class AdmissionMode(StrEnum):
    """What admission does with a pod that breaks the rules of sharing."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    NONE = "none"


class Tenancy(Struct):
    """`ignored` are paths of fields that a later chart has written and that this runtime does not know."""

    scope: Scope = Scope.TENANTS
    admission: AdmissionMode = AdmissionMode.NONE
    platform_namespaces: frozenset[str] = frozenset()
    tenant_namespaces: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def platform(self) -> frozenset[str]:
        """The namespaces of the platform's own pods."""
        return self.platform_namespaces | {"kube-system"}

    def has_tenant(self, namespace: str, *, holds_share: bool) -> bool:
        """Whether a pod of this namespace, which is not the platform's, is a tenant: admission's definition too."""
        return holds_share or self.scope is Scope.CLUSTER or namespace in self.tenant_namespaces


UNKNOWN = Tenancy()
"""What holds as long as nobody says: where admission refuses nothing, nobody is a stray."""


def read(text: str) -> Tenancy:
    """The tenancy that the text is. PolicyError, with the path inside the document, for everything else.

    Fields that are not known are ignored, as those of a policy are.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError("", f"is not JSON: {error}") from error
    ignored: list[str] = []
    whole = Field(value=document, ignored=ignored).fields("apiVersion", "kind", "spec")
    whole["apiVersion"].word(_ApiVersion)
    whole["kind"].word(_Kind)
    spec = whole["spec"].fields("scope", "admission", "platformNamespaces", "tenantNamespaces")
    tenancy = Tenancy(
        scope=spec["scope"].word(Scope),
        admission=spec["admission"].word(AdmissionMode),
        platform_namespaces=_names(spec["platformNamespaces"]),
        tenant_namespaces=_names(spec["tenantNamespaces"]),
    )
    return replace(tenancy, ignored=tuple(ignored))


def _names(value: Field) -> frozenset[str]:
    return frozenset(one.text(_LABEL) for one in value.items())
