{{/*
What the pods of all our DaemonSets have in common. Takes (root, ServiceAccount, the vendor).
The vendor is an entry of the value `vendors`, empty for NVIDIA, and so in all that takes one.
*/}}
{{- define "gpushare.podBase" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ index . 1 }}
automountServiceAccountToken: true
enableServiceLinks: false
# Readings come from the driver, signals go to tenants' processes: both count in the host's process ids.
hostPID: true
priorityClassName: {{ if include "gpushare.observes" $root }}gpushare-observe{{ else }}system-node-critical{{ end }}
# A change of the hardware is brought to a safe point before the pod ends.
terminationGracePeriodSeconds: 60
{{- if and $root.Values.runtimeClassName (not (index . 2)) }}
runtimeClassName: {{ $root.Values.runtimeClassName | quote }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ .name | quote }}
  {{- end }}
{{- end }}
# A security module lets no signal pass from its default profile to a tenant under another one. These two confine nothing on nodes
# without the module; seccomp does not restrict signals.
securityContext:
  appArmorProfile:
    type: Unconfined
  seLinuxOptions:
    type: spc_t
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/*
A node selector term, every text in quotes: toYaml leaves 1e400 plain, which YAML 1.2 takes for a number. Takes a dict of
matchExpressions and matchFields.
*/}}
{{- define "gpushare.term" -}}
{{- range $kind, $requirements := . }}
{{- if $requirements }}
{{ $kind }}:
  {{- range $requirements }}
  - key: {{ .key | quote }}
    operator: {{ .operator | quote }}
    {{- with .values }}
    values:
      {{- range . }}
      - {{ . | quote }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The pool's nodes. With gpu-operator (26.7 on), another value than "true" of nvidia.com/gpu.deploy.client sends GPU clients away: its
driver manager writes it around driver upgrades, mig-manager around changes, an administrator for good. "Absent or true" would
be exact, but takes every term twice, and terms that name nodes are large already; these are all values that those three write.
A node without the label (an older operator, or not yet labelled) is ours.
The driver manager of an older operator knows its own operands alone, drains no DaemonSet, and cannot unload a driver that we keep
open. So our pods go with its validator, whose label it writes as well, and which is paused for nothing else.
An administrator takes the runtime off a node by gpushare.dev/runtime=away, to reset a GPU that it has open.
Takes (root, terms, the vendor: the operators of others than NVIDIA have no such labels).
*/}}
{{- define "gpushare.affinity" -}}
{{- $clients := list (dict "key" "gpushare.dev/runtime" "operator" "NotIn" "values" (list "away")) -}}
{{- if and (ne (index . 0).Values.stack "device-plugin") (not (index . 2)) -}}
{{- $upgrade := "paused-for-driver-upgrade" -}}
{{- $change := "paused-for-mig-change" -}}
{{- $away := list "false" $upgrade $change (printf "%s_%s" $change $upgrade) -}}
{{- $clients = concat $clients (list
  (dict "key" "nvidia.com/gpu.deploy.client" "operator" "NotIn" "values" $away)
  (dict "key" "nvidia.com/gpu.deploy.operator-validator" "operator" "NotIn" "values" (list $upgrade))) -}}
{{- end -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range index . 1 }}
      {{- $expressions := concat (.matchExpressions | default list) $clients }}
      - {{ include "gpushare.term" (dict "matchExpressions" $expressions "matchFields" .matchFields) | indent 8 | trim }}
      {{- end }}
{{- end }}

{{/*
A pool's own toleration.
*/}}
{{- define "gpushare.toleration" -}}
{{- $toleration := . -}}
{{- range $field := list "key" "operator" "value" "effect" }}
{{- if hasKey $toleration $field }}
{{ $field }}: {{ get $toleration $field | quote }}
{{- end }}
{{- end }}
{{- if hasKey $toleration "tolerationSeconds" }}
tolerationSeconds: {{ $toleration.tolerationSeconds | int64 }}
{{- end }}
{{- end }}

{{/*
Environment of a container that reads GPUs. A fieldRef is one value to server-side apply, its defaulted apiVersion included: without
it every second field manager (Helm after kubectl, Argo CD after Helm) meets a conflict.
Takes (MPS control program wanted, MIG's configuration wanted, MIG's monitoring wanted, the vendor: for the GPUs of others nothing of
NVIDIA's runtime is asked for).
*/}}
{{- define "gpushare.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: spec.nodeName
- name: POD_NAME
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.namespace
- name: POD_UID
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.uid
{{- if not (index . 3) }}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
# compute brings the MPS control program.
- name: NVIDIA_DRIVER_CAPABILITIES
  value: {{ ternary "compute,utility" "utility" (index . 0) | quote }}
{{- if index . 1 }}
- name: NVIDIA_MIG_CONFIG_DEVICES
  value: all
{{- end }}
{{- if index . 2 }}
- name: NVIDIA_MIG_MONITOR_DEVICES
  value: all
{{- end }}
{{- end }}
{{- end }}

{{/*
Mounts of every container, each with its volume in gpushare.volumes. Takes (MPS wanted, the vendor, whether kubelet's folder has `pods`).
*/}}
{{- define "gpushare.mounts" -}}
{{- if index . 1 -}}
# The driver's files on the GPUs, their partitions and processes. No device is opened: that would keep the vendor's programs waiting.
{{- range $name, $path := (index . 1).hostPaths }}
- name: {{ $name }}
  mountPath: {{ $path | quote }}
  readOnly: true
{{- end }}
{{- else -}}
# Asks the runtime for all devices. The variable alone does not where the toolkit ignores it for unprivileged containers.
- name: all-gpus
  mountPath: /var/run/nvidia-container-devices/all
  readOnly: true
{{- end }}
- name: state
  mountPath: /var/lib/gpushare
# What kubelet gave to pods, by device plugins and by claims, whichever of them the pool has. Kubelet replaces its list of claims, so
# that its folder is mounted; what it unmounts there must not stay mounted here. The volumes of pods, Secrets among them, are covered.
- name: kubelet
  mountPath: /var/lib/kubelet
  mountPropagation: HostToContainer
  readOnly: true
{{- if index . 2 }}
- name: covered
  mountPath: /var/lib/kubelet/pods
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- if index . 0 }}
# The MPS daemon may start, and mount its shared memory, after us.
- name: mps
  mountPath: /run/nvidia/mps
  mountPropagation: HostToContainer
- name: mps-shm
  mountPath: /dev/shm
  mountPropagation: HostToContainer
{{- end }}
{{- end }}

{{/*
Kubelet's folder is where kubelet was told; inside the container it is always the usual one. What only observes keeps nothing on the host. Takes (root, MPS wanted,
whether it observes, the vendor).
*/}}
{{- define "gpushare.volumes" -}}
{{- if index . 3 -}}
{{- range $name, $path := (index . 3).hostPaths }}
- name: {{ $name }}
  hostPath:
    path: {{ $path | quote }}
    type: Directory
{{- end }}
{{- else -}}
- name: all-gpus
  hostPath:
    path: /dev/null
    type: CharDevice
{{- end }}
- name: state
  {{- if index . 2 }}
  emptyDir:
    sizeLimit: 16Mi
  {{- else }}
  hostPath:
    path: /var/lib/gpushare
    type: DirectoryOrCreate
  {{- end }}
- name: kubelet
  hostPath:
    path: {{ (index . 0).Values.kubeletRoot | quote }}
    type: Directory
{{- if include "gpushare.hasPods" (index . 0) }}
- name: covered
  emptyDir:
    sizeLimit: 1Mi
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 16Mi
{{- if index . 1 }}
- name: mps
  hostPath:
    path: /run/nvidia/mps
    type: DirectoryOrCreate
- name: mps-shm
  hostPath:
    path: /run/nvidia/mps/shm
    type: DirectoryOrCreate
{{- end }}
{{- end }}

{{/*
A container that may change hardware. Privileged only if it must switch MIG or create instances, or its vendor needs it: AMD's KFD
shows devices, and what a process has of each, only to a container that may open them. Else root with KILL (it goes on holding
tenants to their caps while it waits), SYS_PTRACE if it may kill containers, and SYS_ADMIN (the driver asks for it when the compute
mode that MPS left behind is put right). Takes (whether it is privileged, whether it may kill containers).
*/}}
{{- define "gpushare.hardwareSecurity" -}}
{{- if index . 0 -}}
privileged: true
{{- else -}}
allowPrivilegeEscalation: false
capabilities:
  drop:
    - ALL
  add:
    - KILL
    - SYS_ADMIN
    {{- if index . 1 }}
    - SYS_PTRACE
    {{- end }}
{{- end }}
readOnlyRootFilesystem: true
runAsUser: 0
{{- end }}

{{/*
Small and bounded: the runtime is meant to stay under 64 MiB and a few milliseconds a second.
*/}}
{{- define "gpushare.resources" -}}
requests:
  cpu: 50m
  memory: 64Mi
limits:
  cpu: 500m
  memory: 256Mi
{{- end }}

{{/*
A pod that releases its node: it ends when the pool's label is removed. Takes (root, ServiceAccount, requirements of the nodes, the
vendor).
*/}}
{{- define "gpushare.releasePod" -}}
{{- $root := index . 0 -}}
{{- $account := index . 1 -}}
{{- $nodes := index . 2 -}}
{{- $vendor := index . 3 -}}
{{- $privileged := or $vendor.privileged (eq $root.Values.partitioner "gpushare") -}}
{{- include "gpushare.podBase" (list $root $account $vendor) }}
affinity:
  {{- include "gpushare.affinity" (list $root (list (dict "matchExpressions" $nodes)) $vendor) | nindent 2 }}
# The taints of a pool that is gone are not known.
tolerations:
  - operator: Exists
containers:
  - name: release
    image: {{ include "gpushare.image" $root.Values.image | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy | default "IfNotPresent" }}
    command:
      - gpushare-node
      - release
    # Nor its card and its mode: MIG is assumed.
    env:
      {{- include "gpushare.env" (list false $privileged true $vendor) | nindent 6 }}
    resources:
      {{- include "gpushare.resources" $root | nindent 6 }}
    securityContext:
      {{- include "gpushare.hardwareSecurity" (list $privileged true) | nindent 6 }}
    volumeMounts:
      - name: tenancy
        mountPath: /etc/gpushare
        readOnly: true
      {{- include "gpushare.mounts" (list false $vendor (include "gpushare.hasPods" $root)) | nindent 6 }}
volumes:
  # Without it no pod is evicted.
  - name: tenancy
    configMap:
      name: gpushare-tenancy
      optional: true
  {{- include "gpushare.volumes" (list $root false "" $vendor) | nindent 2 }}
{{- end }}
