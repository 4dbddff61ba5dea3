{{/*
Labels of every object.
*/}}
{{- define "gpushare.labels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: gpushare
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- with .Values.cluster }}
gpushare.dev/cluster: {{ . | quote }}
{{- end }}
{{- end }}

{{/*
Labels of the pods of one pool, and their selector: Kubernetes never lets a selector change, so it names neither release nor
version. A version here would also restart every pod with every release of the chart. Takes the pool's name.
*/}}
{{- define "gpushare.poolPodLabels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/component: node
gpushare.dev/pool: {{ . | quote }}
{{- end }}

{{- define "gpushare.releasePodLabels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/component: release
{{- end }}

{{/*
`true` if the chart only observes; empty if it acts. Takes the root.
*/}}
{{- define "gpushare.observes" -}}
{{- if eq (.Values.adoption | default "enforce") "observe" }}true{{ end -}}
{{- end }}

{{/*
`true` if kubelet's folder has the volumes of pods; empty where that is in another one, and a mount there would fail. Takes the root.
*/}}
{{- define "gpushare.hasPods" -}}
{{- if dig "kubeletHasPods" true .Values.AsMap }}true{{ end -}}
{{- end }}

{{/*
The image's reference. A registry takes the place of the repository's host, if it has one: a first part with a dot or a port.
*/}}
{{- define "gpushare.image" -}}
{{- $repository := .repository -}}
{{- with .registry -}}
{{- $parts := splitList "/" $repository -}}
{{- if and (gt (len $parts) 1) (or (contains "." (first $parts)) (contains ":" (first $parts)) (eq "localhost" (first $parts))) -}}
{{- $parts = rest $parts -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (join "/" $parts) -}}
{{- end -}}
{{- if .digest -}}
{{- printf "%s@%s" $repository .digest -}}
{{- else -}}
{{- printf "%s:%s" $repository .tag -}}
{{- end -}}
{{- end }}

{{/*
The text of a file that compile adds; without it the chart is not a bundle's. Takes (root, path).
*/}}
{{- define "gpushare.file" -}}
{{- $text := (index . 0).Files.Get (index . 1) -}}
{{- if not $text -}}
{{- fail (printf "%s is missing: install the chart of a bundle that gpushare compile has written" (index . 1)) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{/*
The namespaces of the platform's own pods, as JSON: for the metrics port. Takes the root.
*/}}
{{- define "gpushare.platformNamespaces" -}}
{{- concat (list "kube-system" .Release.Namespace) .Values.admission.platformNamespaces | uniq | sortAlpha | toJson -}}
{{- end }}
