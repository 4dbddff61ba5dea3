"""Rules on `platform.values`: what NVIDIA's charts read, and what the API server takes of it."""

import pytest

from gpushare.core.diagnostics import pointer
from gpushare.facts.catalog import managed_values, upstream
from gpushare.intent import reader
from gpushare.reading import source
from tests.compiler.rules.intents import check, codes, one, pool, written

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}}"


def values(text: str, stack: str = "gpu-operator") -> str:
    return f"{{stack: {stack}, values: {text}}}"


@pytest.mark.parametrize(
    ("stack", "text", "code", "place", "on_key"),
    [
        ("gpu-operator", "{dcgm: {enable: true}}", "GS708", "dcgm/enable", True),
        ("gpu-operator", "{dcgm: {enabled: {deep: 1}}}", "GS710", "dcgm/enabled", False),
        ("gpu-operator", "{nothing: 1}", "GS708", "nothing", True),
        ("gpu-operator", "{operator: {defaultRuntime: containerd}}", "GS709", "operator/defaultRuntime", True),
        ("gpu-operator", "{dcgm: true}", "GS710", "dcgm", False),
        ("gpu-operator", "{dcgm: {enabled: 1}}", "GS710", "dcgm/enabled", False),
        ("gpu-operator", "{toolkit: {env: {A: b}}}", "GS710", "toolkit/env", False),
        ("gpu-operator", "{mig: {strategy: single}}", "GS711", "mig/strategy", True),
        ("gpu-operator", "{mig: null}", "GS710", "mig", False),
        ("gpu-operator", "{cdi: null}", "GS710", "cdi", False),
        ("gpu-operator", "{toolkit: {env: [A=b]}}", "GS710", "toolkit/env/0", False),
        ("gpu-operator", "{migManager: {config: null}}", "GS710", "migManager/config", False),
        ("gpu-operator", "{devicePlugin: {config: {name: mine}}}", "GS711", "devicePlugin/config/name", True),
        ("gpu-operator", "{migManager: {enabled: false}}", "GS711", "migManager/enabled", True),
        ("gpu-operator", "{driver: {version: '595.91.07'}}", "GS711", "driver/version", True),
        ("gpu-operator", "{daemonsets: {tolerations: []}}", "GS711", "daemonsets/tolerations", True),
        (
            "gpu-operator",
            "{devicePlugin: {env: [{name: A, value: b}, {name: MIG_STRATEGY, value: none}]}}",
            "GS711",
            "devicePlugin/env/1/name",
            False,
        ),
        ("gpu-operator", "{gfd: {env: [{name: MIG_STRATEGY, value: none}]}}", "GS711", "gfd/env/0/name", False),
        ("gpu-operator", "{devicePlugin: {args: [--x, --mig-strategy=none]}}", "GS711", "devicePlugin/args/1", False),
        ("gpu-operator", "{devicePlugin: {args: [-mig-strategy, none]}}", "GS711", "devicePlugin/args/0", False),
        ("gpu-operator", "{gfd: {args: [--config-file=/x]}}", "GS711", "gfd/args/0", False),
        ("gpu-operator", "{toolkit: {env: [{name: A, value: 1}]}}", "GS710", "toolkit/env/0/value", False),
        ("gpu-operator", "{clusterPolicy: {deployCR: false}}", "GS711", "clusterPolicy/deployCR", True),
        ("gpu-operator", "{gpuCluster: {deployCR: true}}", "GS711", "gpuCluster/deployCR", True),
        ("gpu-operator", "{cdi: {nriPluginEnabled: true}}", "GS711", "cdi/nriPluginEnabled", True),
        ("gpu-operator", "{sandboxWorkloads: {defaultWorkload: vm-vgpu}}", "GS711", "sandboxWorkloads/defaultWorkload", True),
        ("device-plugin", "{mps: {root: /run/mps}}", "GS711", "mps/root", True),
        ("device-plugin", "{namespaceOverride: other}", "GS711", "namespaceOverride", True),
        ("device-plugin", "{migStrategy: mixed}", "GS711", "migStrategy", True),
        ("device-plugin", "{config: {map: {a: b}}}", "GS711", "config/map", True),
        ("device-plugin", "{gfd: {sleepInterval: 60s}}", "GS709", "gfd/sleepInterval", True),
        ("gpu-operator", '{"dcgm.enabled": true}', "GS708", "dcgm.enabled", True),
        ("gpu-operator", '{driver: {"rdma.enabled": true}}', "GS708", "driver/rdma.enabled", True),
        ("gpu-operator", "{toolkit: {args: [--x]}}", "GS709", "toolkit/args", True),
        ("gpu-operator", "{operator: {defaultGPUMode: container}}", "GS709", "operator/defaultGPUMode", True),
        ("gpu-operator", "{operator: {initContainer: {image: x}}}", "GS709", "operator/initContainer", True),
        ("gpu-operator", "{operator: {runtimeClass: Foo_Bar}}", "GS710", "operator/runtimeClass", False),
        ("gpu-operator", "{operator: {metrics: {port: 1}}}", "GS708", "operator/metrics/port", True),
        ("gpu-operator", "{hostPaths: {kubeletRootDir: data/kubelet}}", "GS710", "hostPaths/kubeletRootDir", False),
        ("gpu-operator", "{hostPaths: {kubeletRootDir: /data/../kubelet}}", "GS710", "hostPaths/kubeletRootDir", False),
        ("gpu-operator", "{daemonsets: {updateStrategy: Recreate}}", "GS710", "daemonsets/updateStrategy", False),
        ("gpu-operator", "{toolkit: {env: [{name: ''}]}}", "GS710", "toolkit/env/0/name", False),
        ("gpu-operator", "{operator: {env: [{name: A, value: b, valueFrom: {}}]}}", "GS710", "operator/env/0", False),
        ("device-plugin", "{runtimeClassName: Foo_Bar}", "GS710", "runtimeClassName", False),
        ("device-plugin", "{gfd: {nameOverride: x}}", "GS709", "gfd/nameOverride", True),
        ("device-plugin", "{gfd: {namespaceOverride: x}}", "GS709", "gfd/namespaceOverride", True),
        ("device-plugin", "{namespace: x}", "GS709", "namespace", True),
        ("device-plugin", "{sleepInterval: 60}", "GS710", "sleepInterval", False),
        ("device-plugin", "{failOnInitError: 'false'}", "GS710", "failOnInitError", False),
    ],
)
def test_invalid_or_owned_chart_value_is_reported(stack: str, text: str, code: str, place: str, on_key: bool) -> None:
    path, at_key, _ = one(code, platform=values(text, stack))
    assert (path, at_key) == (f"/spec/platform/values/{place}", on_key)
    assert codes(platform=values(text, stack)) == [code]


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        ("gpu-operator", "{dcgm: {enabled: true, args: []}}"),
        ("gpu-operator", "{devicePlugin: {args: [--pass-device-specs]}}"),
        ("gpu-operator", "{nameOverride: gpu, fullnameOverride: gpus}"),
        ("gpu-operator", "{nodeStatusExporter: {enabled: true, env: [{name: A, value: b}], args: [--x]}}"),
        ("gpu-operator", "{sandboxWorkloads: {enabled: true}, ccManager: {args: [--x]}}"),
        ("gpu-operator", "{daemonsets: {rollingUpdate: {maxUnavailable: 2}}}"),
        ("gpu-operator", "{dcgmExporter: {service: {type: NodePort}, serviceMonitor: {interval: 30s}}}"),
        ("gpu-operator", "{operator: {metrics: {serviceMonitor: {enabled: true}}}}"),
        ("gpu-operator", "{operator: {annotations: {example.org/a.b: c}}, daemonsets: {labels: {a.b/c.d: e}}}"),
        ("gpu-operator", "{operator: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}}"),
        ("gpu-operator", "{driver: {manager: {version: v0.12.1}}}"),
        ("device-plugin", "{nvidiaDevRoot: /, mps: {enableHostNetwork: true}, gfd: {enableHostNetwork: true}}"),
        ("device-plugin", "{devicePlugin: {enableHostNetwork: true}, failOnInitError: false, sleepInterval: 60s}"),
        ("gpu-operator", "{dcgm: {enabled: null}}"),
        ("gpu-operator", "{operator: {nodeSelector: {example.org/control: 'true'}}}"),
        ("gpu-operator", "{toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}]}}"),
        ("gpu-operator", "{node-feature-discovery: {master: {extra: 1}}}"),
        ("device-plugin", "{resources: {limits: {cpu: 1}}}"),
    ],
)
def test_valid_chart_values_have_no_findings(stack: str, text: str) -> None:
    assert codes(platform=values(text, stack)) == []


@pytest.mark.parametrize(
    ("platform", "place", "message"),
    [
        ("{values: {dcgm: {hostNetwork: true}}}", "dcgm/hostNetwork", "dcgm.hostNetwork has no effect: dcgm.enabled is"),
        ("{values: {driver: {env: [{name: A, value: b}]}}}", "driver/env", "without platform.driver the operator installs no"),
        ("{values: {migManager: {args: [--x]}}}", "migManager/args", "mig-manager runs with platform.partitioner: mig-manager"),
        ("{values: {ccManager: {args: [--x]}}}", "ccManager/args", "sandboxWorkloads.enabled is not true"),
        ("{values: {nfd: {enabled: false}, node-feature-discovery: {worker: {x: 1}}}}", "node-feature-discovery/worker/x", ""),
        ("{driver: {}, values: {gds: {args: [--x]}}}", "gds/args", "gds.enabled is not true"),
        ("{values: {toolkit: {enabled: false, hostNetwork: true}}}", "toolkit/hostNetwork", "toolkit.enabled is not true"),
        (
            "{values: {draDriver: {featureGates: {A: true}}}}",
            "draDriver/featureGates",
            "does not use the operator's DRA driver",
        ),
        ("{values: {dcgmExporter: {enabled: false, service: {type: NodePort}}}}", "dcgmExporter/service/type", ""),
    ],
)
def test_value_of_a_disabled_part_is_reported(platform: str, place: str, message: str) -> None:
    path, on_key, told = one("GS723", platform=platform)
    assert (path, on_key) == (f"/spec/platform/values/{place}", True)
    assert message in told
    assert codes(platform=platform) == ["GS723"]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("draDriver: {version: v0.4.0}", "remove it; a pool with backend: dra has NVIDIA's own chart of the driver"),
        ("driver: {rdma: {enabled: true}}", "remove it, or write platform.driver"),
        ("migManager: {hostNetwork: true}", "remove it, or write platform.partitioner: mig-manager"),
        ("dcgm: {hostNetwork: true}", "remove it, or enable that part"),
    ],
)
def test_hint_names_the_switch_the_user_may_set(value: str, hint: str) -> None:
    (off,) = [finding for finding in check(written(pool(), platform=f"{{values: {{{value}}}}}")) if finding.code == "GS723"]
    assert off.hints == (hint,)


def test_values_of_an_enabled_part_have_no_findings() -> None:
    assert codes(platform="{driver: {}, values: {driver: {args: [--x]}, gds: {enabled: true, args: [--x]}}}") == []
    assert codes(platform="{partitioner: mig-manager, values: {migManager: {args: [--x]}}}") == []
    of_ours = "{partitioner: mig-manager, values: {migManager: {env: [{name: CONFIG_FILE, value: /x}]}}}"
    assert codes(platform=of_ours) == ["GS711"]


def test_list_entry_is_reported_with_its_list() -> None:
    (entry,) = check(written(pool(), platform="{values: {toolkit: {env: [null]}}}"))
    assert entry.message == "env[0] must be a mapping, not nothing"
    (tag,) = check(written(pool(), platform="{stack: device-plugin, values: {image: {tag: a b}}}"))
    assert tag.hints == ('its default is ""',)


def test_a_key_with_dots_is_answered_with_the_mappings_that_are_meant() -> None:
    (finding,) = check(written(pool(), platform='{values: {"dcgm.enabled": true}}'))
    assert finding.message == "'dcgm.enabled' is one key, and gpu-operator has none with dots"
    assert finding.hints == ("write one mapping in the other: dcgm: {enabled: …}",)


def test_image_repositories_are_the_compilers_only_with_a_registry() -> None:
    text = "values: {dcgm: {enabled: true, repository: elsewhere.example.org/dcgm}}"
    assert codes(platform=f"{{{text}}}") == []
    assert codes(platform=f"{{registry: registry.example.org, {text}}}") == ["GS711"]


@pytest.mark.parametrize("stack", ["gpu-operator", "device-plugin"])
def test_every_managed_value_is_read_by_the_chart(stack: str) -> None:
    text = written(pool(), platform=f"{{stack: {stack}, registry: registry.example.org, imagePullSecrets: [mirror]}}")
    chart = upstream.chart(stack)
    owned = managed_values.owned(reader.build(source.read(text.encode(), "intent.yaml").data), chart)
    judged_paths = {path: upstream.check_path(chart, tuple(path.split("."))) for path in owned}
    unknown = {path for path, verdict in judged_paths.items() if not isinstance(verdict, upstream.Known | upstream.OpenMap)}
    assert not {path for path in unknown if not path.endswith("imagePullSecrets")}


@pytest.mark.parametrize(
    ("stack", "values", "place"),
    [
        ("gpu-operator", "daemonsets: {annotations: {a: true}}", "daemonsets/annotations/a"),
        (
            "gpu-operator",
            "operator: {metrics: {serviceMonitor: {additionalLabels: {a: 1}}}}",
            "operator/metrics/serviceMonitor/additionalLabels/a",
        ),
        ("gpu-operator", "dcgmExporter: {serviceMonitor: {interval: abc}}", "dcgmExporter/serviceMonitor/interval"),
        ("gpu-operator", "operator: {metrics: {serviceMonitor: {interval: abc}}}", "operator/metrics/serviceMonitor/interval"),
        ("gpu-operator", "devicePlugin: {args: [--v=1, true]}", "devicePlugin/args/1"),
        ("gpu-operator", "devicePlugin: {imagePullSecrets: [{name: x}]}", "devicePlugin/imagePullSecrets/0"),
        ("gpu-operator", "driver: {startupProbe: {failureThreshold: 0}}", "driver/startupProbe/failureThreshold"),
        ("gpu-operator", "toolkit: {resources: {limits: {cpu: foo}}}", "toolkit/resources/limits/cpu"),
        ("gpu-operator", "driver: {startupProbe: {periodSeconds: soon}}", "driver/startupProbe/periodSeconds"),
        ("gpu-operator", "operator: {nodeSelector: {a: 1}}", "operator/nodeSelector/a"),
        ("gpu-operator", "nameOverride: Foo_Bar", "nameOverride"),
        ("gpu-operator", "devicePlugin: {env: [{name: A, valueFrom: {fieldRef: {}}}]}", "devicePlugin/env/0/valueFrom"),
        ("gpu-operator", "toolkit: {env: [{name: A, valeu: x}]}", "toolkit/env/0/valeu"),
        ("gpu-operator", "operator: {tolerations: [{key: a, operator: Maybe}]}", "operator/tolerations/0/operator"),
        ("gpu-operator", "operator: {tolerations: [{key: a, operator: Exists, value: b}]}", "operator/tolerations/0/value"),
        (
            "gpu-operator",
            f"operator: {{affinity: {{nodeAffinity: {{{PREFERRED}: [{{weight: 0, preference: {{}}}}]}}}}}}",
            f"operator/affinity/nodeAffinity/{PREFERRED}/0/weight",
        ),
        ("gpu-operator", "operator: {affinity: {nodeAfinity: {}}}", "operator/affinity/nodeAfinity"),
        ("gpu-operator", "operator: {logging: {level: verbose}}", "operator/logging/level"),
        ("gpu-operator", "operator: {logging: {timeEncoding: utc}}", "operator/logging/timeEncoding"),
        ("gpu-operator", "operator: {resources: {limits: {gpu: 1}}}", "operator/resources/limits"),
        ("gpu-operator", "operator: {env: [{name: A, value: b}, {name: A, value: c}]}", "operator/env/1"),
        ("gpu-operator", "operator: {imagePullPolicy: Sometimes}", "operator/imagePullPolicy"),
        ("gpu-operator", "operator: {env: [null]}", "operator/env/0"),
        (
            "gpu-operator",
            "operator: {env: [{name: A, valueFrom: {secretKeyRef: {name: a}}}]}",
            "operator/env/0/valueFrom/secretKeyRef/key",
        ),
        ("gpu-operator", "nameOverride: '1'", "nameOverride"),
        ("device-plugin", "priorityClassName: '12'", "priorityClassName"),
        ("device-plugin", "runtimeClassName: 'true'", "runtimeClassName"),
        ("gpu-operator", "operator: {priorityClassName: 'true: x'}", "operator/priorityClassName"),
        ("gpu-operator", "driver: {secretEnv: '12'}", "driver/secretEnv"),
        ("gpu-operator", "dcgmExporter: {version: 'a b'}", "dcgmExporter/version"),
        ("gpu-operator", "dcgmExporter: {repository: 'https://nvcr.io/x'}", "dcgmExporter/repository"),
        ("gpu-operator", "dcgmExporter: {service: {type: ExternalIP}}", "dcgmExporter/service/type"),
        (
            "gpu-operator",
            "dcgmExporter: {serviceMonitor: {relabelings: [{action: move}]}}",
            "dcgmExporter/serviceMonitor/relabelings/0/action",
        ),
        (
            "gpu-operator",
            "dcgmExporter: {serviceMonitor: {relabelings: [{source_labels: [a]}]}}",
            "dcgmExporter/serviceMonitor/relabelings/0/source_labels",
        ),
        ("gpu-operator", "dcgmExporter: {serviceMonitor: {relabelings: [a]}}", "dcgmExporter/serviceMonitor/relabelings/0"),
        (
            "gpu-operator",
            "operator: {metrics: {serviceMonitor: {relabelings: [{modulus: -1}]}}}",
            "operator/metrics/serviceMonitor/relabelings/0/modulus",
        ),
        ("gpu-operator", "driver: {livenessProbe: {periodSeconds: 0}}", "driver/livenessProbe/periodSeconds"),
        ("gpu-operator", "driver: {startupProbe: {successThreshold: 2}}", "driver/startupProbe/successThreshold"),
        ("gpu-operator", "driver: {readinessProbe: {initialDelaySeconds: -1}}", "driver/readinessProbe/initialDelaySeconds"),
        ("gpu-operator", "toolkit: {resources: {limits: {cpu: -1}}}", "toolkit/resources/limits/cpu"),
        ("gpu-operator", "hostPaths: {rootFS: 'a b'}", "hostPaths/rootFS"),
        ("gpu-operator", "daemonsets: {rollingUpdate: {maxUnavailable: 0}}", "daemonsets/rollingUpdate/maxUnavailable"),
        ("gpu-operator", "daemonsets: {labels: {a: 'b c'}}", "daemonsets/labels/a"),
        ("gpu-operator", "extraObjects: [{apiVersion: v1}]", "extraObjects/0/kind"),
        ("device-plugin", "securityContext: {privileged: 'yes'}", "securityContext/privileged"),
        ("device-plugin", "gfd: {securityContext: {runAsUser: -1}}", "gfd/securityContext/runAsUser"),
        ("device-plugin", "podSecurityContext: {fsGroup: x}", "podSecurityContext/fsGroup"),
        ("device-plugin", "image: {tag: 'a b'}", "image/tag"),
        ("device-plugin", "image: {pullPolicy: Sometimes}", "image/pullPolicy"),
        ("device-plugin", "imagePullSecrets: [mirror]", "imagePullSecrets/0"),
        ("device-plugin", "updateStrategy: {rollingUpdate: {maxSurge: -1}}", "updateStrategy/rollingUpdate/maxSurge"),
        (
            "device-plugin",
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
            "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
        ),
        ("device-plugin", "nvidiaDriverRoot: 'true'", "nvidiaDriverRoot"),
        ("device-plugin", "sleepInterval: soon", "sleepInterval"),
        ("device-plugin", "cdi: {nvidiaHookPath: '# x'}", "cdi/nvidiaHookPath"),
        ("device-plugin", "nameOverride: Foo_Bar", "nameOverride"),
        ("device-plugin", "updateStrategy: {type: Foo}", "updateStrategy/type"),
        ("device-plugin", "deviceListStrategy: foo", "deviceListStrategy"),
        ("device-plugin", "deviceIDStrategy: foo", "deviceIDStrategy"),
        ("device-plugin", "podAnnotations: {a: 1}", "podAnnotations/a"),
        ("device-plugin", "nodeSelector: {a: 1}", "nodeSelector/a"),
    ],
)
def test_chart_value_the_api_server_refuses_is_reported(stack: str, values: str, place: str) -> None:
    driver = ", driver: {}" if stack == "gpu-operator" else ""
    assert one("GS710", platform=f"{{stack: {stack}{driver}, values: {{{values}}}}}")[0] == f"/spec/platform/values/{place}"


@pytest.mark.parametrize(
    ("stack", "values"),
    [
        ("gpu-operator", "daemonsets: {annotations: {a: 'true'}}"),
        ("gpu-operator", "dcgmExporter: {serviceMonitor: {interval: 1m30s, additionalLabels: {a: b}}}"),
        ("gpu-operator", "driver: {startupProbe: {failureThreshold: 200}}"),
        ("gpu-operator", "toolkit: {resources: {limits: {cpu: 2, memory: 1.5Gi}, requests: {cpu: 500m}}}"),
        ("gpu-operator", "toolkit: {env: [{name: A, value: b}, {name: B}]}"),
        ("gpu-operator", "operator: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}}}], nodeSelector: {a: b}}"),
        ("device-plugin", "deviceListStrategy: 'envvar, volume-mounts', deviceIDStrategy: index, nvidiaDriverRoot: /"),
        ("device-plugin", "nameOverride: own, nodeSelector: {a: b}, updateStrategy: {type: OnDelete}"),
        ("gpu-operator", "operator: {tolerations: [{operator: Exists}], logging: {level: 5}, resources: {limits: {cpu: 0.5}}}"),
        ("gpu-operator", "operator: {logging: {level: debug}, affinity: null, priorityClassName: ''}"),
        ("gpu-operator", f"operator: {{affinity: {{podAffinity: {{{PREFERRED}: [{{weight: 1, podAffinityTerm: {TERM}}}]}}}}}}"),
        ("gpu-operator", "dcgmExporter: {serviceMonitor: {relabelings: [{sourceLabels: [a], action: keep}]}}"),
        ("gpu-operator", "driver: {livenessProbe: {periodSeconds: 30}, startupProbe: null, secretEnv: my-secret}"),
        ("gpu-operator", "dcgmExporter: {repository: 'reg.example.org:5000/nvidia', version: 'sha256:" + 64 * "a" + "'}"),
        ("gpu-operator", "driver: {upgradePolicy: {maxUnavailable: 30%, drain: {podSelector: 'app in (a,b)'}}}"),
        ("device-plugin", "securityContext: {privileged: true}, gfd: {securityContext: {capabilities: {add: [SYS_ADMIN]}}}"),
        ("device-plugin", "imagePullSecrets: [{name: mirror}], image: {tag: v0.20.0, pullPolicy: Always}, affinity: {}"),
        ("device-plugin", "nvidiaDriverRoot: /run/nvidia/driver, updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}"),
    ],
)
def test_chart_value_the_api_server_accepts_has_no_findings(stack: str, values: str) -> None:
    driver = ", driver: {}" if stack == "gpu-operator" else ""
    assert codes(platform=f"{{stack: {stack}{driver}, values: {{{values}}}}}") == []


@pytest.mark.parametrize(
    ("stack", "values", "place", "hint"),
    [
        (
            "gpu-operator",
            "toolkit: {resources: {limits: {cpu: 1}, requests: {cpu: 1500m}}}",
            "toolkit/resources/requests/cpu",
            "write limits: {cpu: 1500m}, or a smaller request",
        ),
        (
            "gpu-operator",
            "operator: {resources: {requests: {cpu: 0.6}}}",
            "operator/resources/requests/cpu",
            "write limits: {cpu: 0.6}, or a smaller request",
        ),
        (
            "gpu-operator",
            "operator: {resources: {limits: {memory: 64Mi}}}",
            "operator/resources/limits/memory",
            "write limits: {memory: 100Mi}, or a smaller request",
        ),
        (
            "device-plugin",
            "securityContext: {privileged: true, allowPrivilegeEscalation: false}",
            "securityContext",
            "leave allowPrivilegeEscalation out",
        ),
        (
            "device-plugin",
            "gfd: {securityContext: {allowPrivilegeEscalation: false}}",
            "gfd/securityContext",
            "leave allowPrivilegeEscalation out",
        ),
        ("device-plugin", "securityContext: null", "securityContext", "write a mapping of fields"),
        ("device-plugin", "podAnnotations: null", "podAnnotations", "such as {}"),
        ("gpu-operator", "dcgmExporter: {config: {create: true, data: x}}", "dcgmExporter/config/create", "add name"),
        (
            "gpu-operator",
            "dcgmExporter: {serviceMonitor: {interval: 15sec}}",
            "dcgmExporter/serviceMonitor/interval",
            "its default is 15s",
        ),
        ("gpu-operator", "extraObjects: ['a: {{']", "extraObjects/0", None),
        ("gpu-operator", "extraObjects: [{apiVersion: v1, kind: A, spec: {a: ['{{ x']}}]", "extraObjects/0/spec/a/0", None),
        (
            "gpu-operator",
            "ccManager: {defaultMode: maybe}, sandboxWorkloads: {enabled: true}",
            "ccManager/defaultMode",
            'its default is "on"',
        ),
        (
            "gpu-operator",
            "operator: {tolerations: {a: b}}",
            "operator/tolerations",
            'such as [{key: node-role.kubernetes.io/control-plane, operator: Equal, value: "", effect: NoSchedule}]',
        ),
    ],
)
def test_conflicting_chart_values_are_reported(stack: str, values: str, place: str, hint: str | None) -> None:
    text = written(pool(), platform=f"{{stack: {stack}, values: {{{values}}}}}")
    (found,) = [one for one in check(text) if one.code == "GS710"]
    assert pointer(found.path) == f"/spec/platform/values/{place}"
    assert hint is None or found.hints == (hint,)


@pytest.mark.parametrize(
    ("stack", "values"),
    [
        ("gpu-operator", "operator: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: 1024Mi}}}"),
        ("gpu-operator", "operator: {resources: {limits: {cpu: null}, requests: {cpu: 900m}}}"),
        ("gpu-operator", "operator: {resources: {limits: null, requests: {cpu: 2}}}"),
        ("gpu-operator", "dcgmExporter: {config: {name: own, create: true, data: x}}"),
        ("gpu-operator", "extraObjects: [{apiVersion: v1, kind: A, spec: {a: '{{ .Release.Name }}', b: '{\"c\": {}}'}}]"),
        ("device-plugin", "podSecurityContext: null, nodeSelector: null, affinity: null, resources: null"),
        ("device-plugin", "gfd: {securityContext: {privileged: false, allowPrivilegeEscalation: false}}"),
    ],
)
def test_compatible_chart_values_have_no_findings(stack: str, values: str) -> None:
    assert codes(platform=f"{{stack: {stack}, values: {{{values}}}}}") == []
