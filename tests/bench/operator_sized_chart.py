"""A chart of the size and build of a large GPU operator's, for timing: about 1,600 rendered lines, a policy object with a block
for each of twenty operands, hooks, rights, custom resources, much that is switched off, and a subchart with a large schema that
discovers features. Its content is made up; a test holds its size to the figures of NVIDIA's chart.
"""

import json
from pathlib import Path

KINDS = ("driver", "toolkit", "plugin", "monitor", "sandbox")
PARTS = ("agent", "config", "exporter", "validator")
OPERANDS = tuple(f"{kind}-{part}" for kind in KINDS for part in PARTS)
DISCOVERY = ("master", "worker", "collector")

HELPERS = """\
{{- define "NAME.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "NAME.labels" -}}
app.kubernetes.io/name: {{ include "NAME.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- if .Chart.AppVersion }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- end -}}

{{- define "NAME.image" -}}
{{- if hasPrefix "sha256:" .version -}}
{{- printf "%s/%s@%s" .repository .image .version -}}
{{- else -}}
{{- printf "%s/%s:%s" .repository .image .version -}}
{{- end -}}
{{- end -}}
"""

OPERAND_VALUES = """\
NAME:
  enabled: true
  repository: registry.example.org/operands
  image: NAME
  version: "1.2.3"
  imagePullPolicy: IfNotPresent
  imagePullSecrets: []
  env:
    - name: LOG_LEVEL
      value: info
    - name: NAME_MODE
      value: auto
    - name: RETRIES
      value: "5"
  args: [--verbose, --interval=10s]
  resources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {cpu: 500m, memory: 512Mi}
  config: {name: "", default: "", create: false, data: {}}
  hostPID: false
  serviceMonitor: {enabled: true, interval: 15s, honorLabels: false, additionalLabels: {team: gpu}, relabelings: []}
  upgrade: {auto: true, maxParallel: 1, maxUnavailable: 25%, drain: {enable: false, force: false, timeoutSeconds: 300}}
"""

POLICY_HEAD = """\
apiVersion: example.org/v1
kind: Policy
metadata:
  name: policy
  labels: {{ include "CHART.labels" . | nindent 4 }}
spec:
"""

OPERAND_POLICY = """\
  {{- with index .Values "NAME" }}
  NAME:
    enabled: {{ .enabled }}
    {{- if .repository }}
    repository: {{ .repository }}
    {{- end }}
    image: {{ .image }}
    version: {{ .version | quote }}
    reference: {{ include "operator.image" . }}
    imagePullPolicy: {{ .imagePullPolicy }}
    {{- if .imagePullSecrets }}
    imagePullSecrets: {{ toYaml .imagePullSecrets | nindent 6 }}
    {{- end }}
    {{- if .resources }}
    resources: {{ toYaml .resources | nindent 6 }}
    {{- end }}
    {{- if .env }}
    env: {{ toYaml .env | nindent 6 }}
    {{- end }}
    {{- if .args }}
    args: {{ toYaml .args | nindent 6 }}
    {{- end }}
    {{- if and .config (or .config.name .config.create) }}
    config:
      name: {{ default "NAME-config" .config.name }}
      default: {{ .config.default | quote }}
    {{- end }}
    {{- if .serviceMonitor }}
    serviceMonitor:
      enabled: {{ .serviceMonitor.enabled | default false }}
      interval: {{ .serviceMonitor.interval }}
      honorLabels: {{ .serviceMonitor.honorLabels }}
      {{- with .serviceMonitor.additionalLabels }}
      additionalLabels: {{ toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    upgrade: {{ toYaml .upgrade | nindent 6 }}
    hostPID: {{ .hostPID }}
  {{- end }}
"""

SERVICE_ACCOUNT = """\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: NAME
  namespace: {{ .Release.Namespace }}
  labels: {{ include "CHART.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: NAME
  labels: {{ include "CHART.labels" . | nindent 4 }}
rules:
{{- range $group := list "" "apps" "batch" "coordination.k8s.io" "monitoring.example.org" "policy.example.org" }}
  - apiGroups: [{{ $group | quote }}]
    resources:
      - configmaps
      - daemonsets
      - pods
      - nodes
    verbs:
      - get
      - list
      - watch
      - update
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: NAME
  labels: {{ include "CHART.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects:
  - {kind: ServiceAccount, name: NAME, namespace: {{ .Release.Namespace }}}
"""

WORKLOAD = """\
---
apiVersion: apps/v1
kind: KIND
metadata:
  name: NAME
  namespace: {{ .Release.Namespace }}
  labels: {{ include "CHART.labels" . | nindent 4 }}
  {{- with .Values.annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels: {app: NAME}
  template:
    metadata:
      labels:
        {{- include "CHART.labels" . | nindent 8 }}
        app: NAME
    spec:
      serviceAccountName: NAME
      priorityClassName: {{ .Values.priorityClassName | quote }}
      {{- with .Values.tolerations }}
      tolerations: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{ toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: NAME
          image: {{ include "CHART.image" .Values.program }}
          imagePullPolicy: {{ .Values.program.imagePullPolicy | default "IfNotPresent" }}
          args: [--leader-elect, --zap-time-encoding=epoch]
          env:
            - name: OWN_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          {{- with .Values.program.resources }}
          resources: {{ toYaml . | nindent 12 }}
          {{- end }}
          livenessProbe:
            httpGet: {path: /healthz, port: 8081}
          readinessProbe:
            httpGet: {path: /readyz, port: 8081}
"""

HOOK = """\
---
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  namespace: {{ .Release.Namespace }}
  annotations:
    helm.sh/hook: EVENT
    helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation
  labels: {{ include "CHART.labels" . | nindent 4 }}
spec:
  template:
    spec:
      restartPolicy: Never
      serviceAccountName: NAME
      containers:
        - name: NAME
          image: {{ include "CHART.image" .Values.program }}
          command: [/bin/sh, -c, "true"]
"""

SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: NAME
  namespace: {{ .Release.Namespace }}
  labels: {{ include "CHART.labels" . | nindent 4 }}
data: {level: {{ .Values.level | quote }}}
"""

SWITCHED_OFF = 24
"""Templates of what a default installation has not."""
FIELDS_OFF = 35
"""Plain lines of each of them."""
RESOURCE_FIELDS = 3290
"""Of the custom resource's schema."""
SCHEMA_FIELDS = 915
"""Of the schema of the subchart's values."""

COMMON_VALUES = """\
nameOverride: ""
level: info
optional: false
annotations: {example.org/owner: gpu}
priorityClassName: system-node-critical
program:
  repository: registry.example.org/operator
  image: operator
  version: "1.2.3"
  resources: {requests: {cpu: 200m, memory: 100Mi}, limits: {cpu: 500m, memory: 350Mi}}
tolerations:
  - {key: node-role.kubernetes.io/control-plane, operator: Equal, value: "", effect: NoSchedule}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        preference: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: In, values: [""]}]}
"""


def write_chart(folder: Path) -> Path:
    """Write the chart into a new folder and return it."""
    policy = POLICY_HEAD + "".join(OPERAND_POLICY.replace("NAME", name) for name in OPERANDS)
    values = COMMON_VALUES + "discovery: {enabled: true}\n"
    values += "".join(OPERAND_VALUES.replace("NAME", name) for name in OPERANDS)
    events = ("pre-upgrade", "pre-delete", "post-delete")
    _write(
        folder,
        "operator",
        values,
        {
            "policy.yaml": policy,
            "operator.yaml": WORKLOAD.replace("KIND", "Deployment").replace("NAME", "operator"),
            "rights.yaml": SERVICE_ACCOUNT.replace("NAME", "operator"),
            "hooks.yaml": "".join(HOOK.replace("EVENT", event).replace("NAME", f"operator-{event}") for event in events),
            **{f"settings-{part}.yaml": SETTINGS.replace("NAME", f"operator-{part}") for part in PARTS},
            **{f"optional-{number}.yaml": _switched_off(OPERANDS[number % len(OPERANDS)]) for number in range(SWITCHED_OFF)},
        },
        "dependencies:\n  - name: discovery\n    version: 0.1.0\n    condition: discovery.enabled\n",
    )
    _write(
        folder / "charts" / "discovery",
        "discovery",
        COMMON_VALUES,
        {
            "workloads.yaml": "".join(WORKLOAD.replace("KIND", "DaemonSet").replace("NAME", name) for name in DISCOVERY),
            **{f"{name}.yaml": SERVICE_ACCOUNT.replace("NAME", name) for name in DISCOVERY},
            **{f"settings-{part}.yaml": SETTINGS.replace("NAME", f"discovery-{part}") for part in PARTS},
        },
    )
    (folder / "charts" / "discovery" / "values.schema.json").write_text(_schema())
    (folder / "crds").mkdir()
    (folder / "crds" / "policies.yaml").write_text(_custom_resource())
    return folder


def _switched_off(operand: str) -> str:
    plain = "".join(f"  field-{number:02}: a value of a field that nobody changes\n" for number in range(FIELDS_OFF))
    levels = "".join(f'  level-{number}: {{{{ .Values.level | default "info" | quote }}}}\n' for number in range(5))
    blocks = POLICY_HEAD + OPERAND_POLICY.replace("NAME", operand) + plain + levels
    return "{{- if .Values.optional }}\n" + blocks + "{{- end }}\n"


def _custom_resource() -> str:
    head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: policies.example.org}\n"
    head += "spec:\n  group: example.org\n  names: {kind: Policy, plural: policies}\n"
    head += "  scope: Cluster\n  versions:\n    - name: v1\n"
    head += "      served: true\n      storage: true\n      schema:\n        openAPIV3Schema:\n          type: object\n"
    described = "              description: what the field means\n              type: string\n"
    fields = "".join(f"            field{number:04}:\n{described}" for number in range(RESOURCE_FIELDS))
    return head + "          properties:\n" + fields


def _schema() -> str:
    described = "What the field means, in a sentence that is as long as such sentences are, and where more is written. " * 2
    field = {"description": described, "type": ["string", "null"], "maxLength": 63}
    fields = {f"field{number:04}": field for number in range(SCHEMA_FIELDS)}
    schema: dict[str, object] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    schema["$defs"] = {"Pod": {"type": "object", "properties": fields}}  # nobody refers to it, as to most of the real one
    return json.dumps(schema, indent=4)


def _write(folder: Path, chart: str, values: str, templates: dict[str, str], more: str = "") -> None:
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(f"apiVersion: v2\nname: {chart}\nversion: 0.1.0\nappVersion: 1.2.3\n{more}")
    (folder / "values.yaml").write_text(values)
    (folder / "templates" / "_helpers.tpl").write_text(HELPERS.replace("NAME", chart))
    for name, text in templates.items():
        (folder / "templates" / name).write_text(text.replace("CHART", chart))
