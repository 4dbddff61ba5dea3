"""What neither the charts nor the schemas of Kubernetes tell of a value: the checks in Kubernetes' and NVIDIA's programs.

Each is a part of a JSON Schema that is merged into a value's own. Sources: `pkg/apis/core/validation` of Kubernetes, the flags
of the device plugin and of controller-runtime's logging, the operator's `internal/image`.
"""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"^({_SUBDOMAIN}/)?{_LABEL}$(?!\n)"
_REPOSITORY = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9.-]+(:[0-9]{1,5})?"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = "sha256:[a-f0-9]{64}"
_WORDS = "envvar|volume-mounts|cdi-annotations|cdi-cri"
MAX_INT32 = (1 << 31) - 1
"""What Kubernetes keeps counts and seconds in."""

NAME: Schema = {
    "pattern": rf"^({_SUBDOMAIN})?$(?!\n)",
    "maxLength": 253,
    "patternErrorMessage": "must be lower-case letters, digits, inner hyphens and dots",
}
_OWN_NAME: Schema = {**NAME, "maxLength": 63}
KEYS: Schema = {
    "pattern": _KEY,
    "maxLength": 317,
    "patternErrorMessage": "must be letters, digits and inner -, _ and ., after an optional DNS name and a slash",
}
LABEL: Schema = {
    "pattern": rf"^({_LABEL})?$(?!\n)",
    "patternErrorMessage": "must be letters, digits and inner -, _ and ., at most 63 of them",
}
FOLDER: Schema = {
    "pattern": r"^(?!.*/\.\.(/|$))(/|(/[A-Za-z0-9._+@-]+)+/?)?$(?!\n)",
    "maxLength": 1024,
    "patternErrorMessage": "must be an absolute path without .., such as /var/lib/kubelet",
}
_COUNT = r"[1-9][0-9]{0,8}|([1-9][0-9]?|100)%"
_LIMIT: Schema = {
    "type": ["integer", "string"],
    "minimum": 1,
    "maximum": MAX_INT32,
    "pattern": rf"^({_COUNT})$(?!\n)",
    "patternErrorMessage": "must be a number from 1 on, or a percentage up to 100%",
}
TAG: Schema = {"pattern": rf"^({_TAG})?$(?!\n)", "patternErrorMessage": "must be the tag of an image"}
VERSION: Schema = {"pattern": rf"^({_TAG}|{_DIGEST})?$(?!\n)", "patternErrorMessage": "must be an image's tag or digest"}

UNQUOTED: Schema = {
    "format": "gpushare-unquoted",
    "patternErrorMessage": "must be text that YAML takes for nothing else: the chart prints it without quotes",
}

_QUANTITY = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$(?!\n)"
QUANTITY: Schema = {"minimum": 0, "pattern": _QUANTITY, "patternErrorMessage": "must be a quantity, such as 500m or 2Gi"}
_AMOUNTS: Schema = {
    "propertyNames": {
        "pattern": rf"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMGTPE]i|{_SUBDOMAIN}/{_LABEL})$(?!\n)",
        "patternErrorMessage": "must be a resource: cpu, memory or one with a domain, such as nvidia.com/gpu",
    },
    "additionalProperties": QUANTITY,
}

_SPAN: Schema = {"patternErrorMessage": "must be a duration of Prometheus, such as 15s or 1m30s"}

BY_KEY: Mapping[str, Schema] = {
    "limits": _AMOUNTS,
    "requests": _AMOUNTS,
    "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "priorityClassName": NAME,
    "runtimeClass": NAME,
    "runtimeClassName": NAME,
    "version": VERSION,
    "tag": TAG,
    "image": {"pattern": rf"^({_REPOSITORY})?$(?!\n)", "patternErrorMessage": "must be the name of an image, without its tag"},
    "repository": {
        "pattern": rf"^(({_HOST}/)?{_REPOSITORY}(/{_REPOSITORY})*|{_HOST})?$(?!\n)",
        "patternErrorMessage": "must be where images are, such as nvcr.io/nvidia, without tag",
    },
    "interval": _SPAN,
    "scrapeTimeout": _SPAN,
    "initialDelaySeconds": {"minimum": 0, "maximum": MAX_INT32},
}
"""By the last key of a value."""

BY_PATH: Mapping[str, Schema] = {
    "config.fallbackStrategies": {"items": {"enum": ["named", "single", "empty"]}},
    "daemonsets.rollingUpdate.maxUnavailable": _LIMIT,
    "dcgmExporter.config.name": NAME,
    "dcgmExporter.service.internalTrafficPolicy": {"enum": ["Cluster", "Local"]},
    "dcgmExporter.service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "deviceDiscoveryStrategy": {"enum": ["", "auto", "nvml", "tegra"]},
    "deviceIDStrategy": {"enum": ["", "uuid", "index"]},
    "deviceListStrategy": {
        "pattern": rf"^(({_WORDS})(, *({_WORDS}))*)?$(?!\n)",
        "patternErrorMessage": f"must be some of {_WORDS.replace('|', ', ')}, with commas between them",
    },
    "driver.livenessProbe.successThreshold": {"maximum": 1},
    "driver.startupProbe.successThreshold": {"maximum": 1},
    "driver.upgradePolicy.maxUnavailable": _LIMIT,
    "extraObjects": {"items": {"type": ["object", "string"], "required": ["apiVersion", "kind"]}},
    "fullnameOverride": _OWN_NAME,
    "hostPaths.driverInstallDir": FOLDER,
    "hostPaths.kubeletRootDir": {**FOLDER, "pattern": FOLDER["pattern"].replace("(/|(/", "((/", 1)},
    "hostPaths.rootFS": FOLDER,
    "nameOverride": _OWN_NAME,
    "nvidiaDevRoot": FOLDER,
    "nvidiaDriverRoot": FOLDER,
    "operator.imagePullSecrets": {"items": {"type": "string", **NAME, "minLength": 1}},
    "operator.logging.level": {
        "type": ["integer", "string"],
        "minimum": 1,
        "maximum": 127,
        "pattern": r"^(|[dD][eE][bB][uU][gG]|[iI][nN][fF][oO]|[eE][rR][rR][oO][rR]|[pP][aA][nN][iI][cC]|"
        r"[1-9][0-9]?|1[01][0-9]|12[0-7])$(?!\n)",
        "patternErrorMessage": "must be debug, info, error, panic or a number from 1 to 127",
    },
    "operator.logging.timeEncoding": {"enum": ["", "epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"]},
    "sleepInterval": {"format": "gpushare-duration", "patternErrorMessage": "must be a duration, such as 60s"},
    "toolkit.installDir": FOLDER,
}
"""By the path of a value."""

_REQUIREMENT: Schema = {"key": KEYS, "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]}}
BY_DEFINITION: Mapping[str, Schema] = {
    "AppArmorProfile": {"properties": {"type": {"enum": ["Localhost", "RuntimeDefault", "Unconfined"]}}},
    "LabelSelectorRequirement": {"properties": {**_REQUIREMENT, "operator": {"enum": _REQUIREMENT["operator"]["enum"][:4]}}},
    "LocalObjectReference": {"properties": {"name": NAME}, "required": ["name"]},
    "NodeSelector": {"properties": {"nodeSelectorTerms": {"minItems": 1}}},
    "NodeSelectorRequirement": {"properties": _REQUIREMENT},
    "PodAffinityTerm": {"properties": {"topologyKey": {**KEYS, "minLength": 1}}},
    "PreferredSchedulingTerm": {"properties": {"weight": {"minimum": 1, "maximum": 100}}},
    "ResourceRequirements": {"properties": {"claims": {"maxItems": 0}, "limits": _AMOUNTS, "requests": _AMOUNTS}},
    "SeccompProfile": {"properties": {"type": {"enum": ["Localhost", "RuntimeDefault", "Unconfined"]}}},
    "SecurityContext": {
        "properties": {
            "procMount": {"enum": ["Default", "Unmasked"]},
            "runAsUser": {"minimum": 0},
            "runAsGroup": {"minimum": 0},
        }
    },
    "PodSecurityContext": {
        "properties": {
            "fsGroup": {"minimum": 0},
            "runAsUser": {"minimum": 0},
            "runAsGroup": {"minimum": 0},
            "fsGroupChangePolicy": {"enum": ["Always", "OnRootMismatch"]},
            "supplementalGroupsPolicy": {"enum": ["Merge", "Strict"]},
            "supplementalGroups": {"items": {"type": "integer", "minimum": 0, "maximum": MAX_INT32}},
        }
    },
    "Toleration": {
        "properties": {
            "operator": {"enum": ["Exists", "Equal"]},
            "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        }
    },
    "DaemonSetUpdateStrategy": {"properties": {"type": {"enum": ["RollingUpdate", "OnDelete"]}}},
    "RollingUpdateDaemonSet": {"properties": {"maxUnavailable": _LIMIT, "maxSurge": {**_LIMIT, "minimum": 0}}},
    "WeightedPodAffinityTerm": {"properties": {"weight": {"minimum": 1, "maximum": 100}}},
    "env": {
        "properties": {
            "name": {
                "pattern": r"^[-._a-zA-Z][-._a-zA-Z0-9]*$(?!\n)",
                "patternErrorMessage": "must be letters, digits, -, _ and ., and begin with no digit",
            }
        }
    },
}
"""By the name of a definition: a type of Kubernetes, or the key of a list in one of NVIDIA's resources."""
BY_DEFINITION = {**BY_DEFINITION, "EnvVar": BY_DEFINITION["env"]}

MAPS: Mapping[str, tuple[Schema | None, Schema | None]] = {
    "labels": (KEYS, LABEL),
    "additionalLabels": (KEYS, LABEL),
    "nodeSelector": (KEYS, LABEL),
    "matchLabels": (KEYS, LABEL),
    "selectorLabelsOverride": (KEYS, LABEL),
    "annotations": (KEYS, None),
    "podAnnotations": (KEYS, None),
}
"""By the last key of a mapping of texts: what its keys and its values are."""


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Schema:
    """Both at once; where both say something of a keyword that holds no schemas, `other`."""
    both = dict(one)
    for key, value in other.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both
