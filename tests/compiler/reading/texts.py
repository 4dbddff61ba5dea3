"""Texts that several tests of reading share, and the short form in which they compare findings."""

from gpushare.core.diagnostics import Finding
from gpushare.reading import schema, source
from tests.support.intents import PLATFORM

INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: physics-batch}
spec:
  pools:
    notebooks:
      card: t4
      nodes: {names: [gpu-01]}
      gpusPerNode: 4
      sharing: {mode: time-slicing, replicas: 4}
"""

FULL = (
    """\
$schema: ./intent.v1.json
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: physics-batch, labels: {team: gpu}, annotations: {any: [1, 2]}}
spec:
"""
    + PLATFORM
    + """\
    partitioner: mig-manager
    driver: {repository: registry.example.org/nvidia, image: driver, version: "595.91.07"}
    registry: registry.example.org:5000/mirror
    imagePullSecrets: [mirror]
    values: {dcgm: {enabled: true, args: null}}
  pools:
    notebooks:
      card: t4
      nodes:
        matchLabels: {node.example.org/flavour: gpu-t4}
        matchExpressions:
        - {key: zone, operator: In, values: [a, b]}
        - {key: broken, operator: DoesNotExist}
        expected: 12
      gpusPerNode: 4
      priority: 10
      sharing: {mode: time-slicing, replicas: 4, rename: false, placement: pack}
      memory: {cap: even, reserve: 5%, oversubscribe: 150%}
      enforcement: {action: evict, grace: 1m30s, tolerance: 2.5%, mechanism: watcher}
      namespaces: [atlas, cms]
      tolerations: [{key: gpu, operator: Equal, value: t4, effect: NoExecute, tolerationSeconds: 30}]
    serving:
      card: l40s
      nodes: {names: [gpu-l40s-01, gpu-l40s-02]}
      gpusPerNode: 4
      sharing: {mode: mps, replicas: 8}
      rollout: {maxUnavailable: 10%, onBusy: evict, drainTimeout: 2h}
    dense:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {node.example.org/flavour: gpu-a100}}
      gpusPerNode: 8
      sharing:
        mode: mig
        strategy: mixed
        layouts:
        - {gpus: [0, 1, 2, 3], layout: {2g.10gb: 2, 1g.5gb: 3}}
        - {gpus: [4, 5, 6, 7], layout: none}
        replicas: {1g.5gb: 2}
      memory: {cap: {1g.5gb: 2200Mi}, reserve: 268435456}
      rollout: {maxUnavailable: 2}
    goals:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {node.example.org/flavour: gpu-a100-goal}}
      gpusPerNode: 8
      sharing: {mode: mig, goal: {memory: 9Gi}, replicas: 3}
    hpc:
      card: h100-sxm5-80gb
      nodes: {matchLabels: {node.example.org/flavour: gpu-h100}}
      gpusPerNode: 8
      sharing: {mode: exclusive}
      require: {nvlink: true, ecc: true, memory: 79Gi}
  quotas:
    atlas: {dense: {2g.10gb: 4}, notebooks: 8}
    cms: {notebooks: {memory: 56Gi}}
  admission: {enforce: audit}
  monitoring: {serviceMonitor: true, dashboard: true, alerts: false, labels: {release: kube-prometheus-stack}}
  gitops:
    argocd: {repoURL: "https://git.example.org/gpu.git", path: clusters/physics-batch, project: default}
    flux: {url: "https://git.example.org/gpu.git", path: clusters/physics-batch, interval: 5m}
  cards: {my-card: {name: My Card}}
"""
)
"""An intent with every field of the contract at least once."""


def place(finding: Finding) -> str:
    """`CODE line:column-end` of a finding on one line, `CODE line:column-line:column` of a longer one."""
    at = finding.span
    assert at
    end = f"{at.end_column}" if at.line == at.end_line else f"{at.end_line}:{at.end_column}"
    return f"{finding.code} {at.line}:{at.column}-{end}"


def of_text(data: bytes | str) -> list[str]:
    """The text findings of a document."""
    raw = data if isinstance(data, bytes) else data.encode()
    return [place(finding) for finding in source.read(raw, "intent.yaml").findings]


def of_shape(text: str) -> list[Finding]:
    """The shape findings of a document whose text is right, with their places."""
    read = source.read(text.encode(), "intent.yaml")
    assert read.findings == ()
    return [read.locate(finding) for finding in schema.check(read)]
