{{/*
Every namespace but the platform's and those that administrators have exempted: tenants cannot label a namespace. Takes the root.
*/}}
{{- define "gpushare.bound" -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: NotIn
        values:
          {{- range include "gpushare.platformNamespaces" . | fromJsonArray }}
          - {{ . | quote }}
          {{- end }}
      - key: gpushare.dev/admission
        operator: NotIn
        values:
          - exempt
{{- end }}

{{/*
A validating policy and its binding. Takes (root, name, the policy's spec, actions).
*/}}
{{- define "gpushare.policy" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $policy := index . 2 }}
{{- if include "gpushare.observes" $root }}
{{- /* The API server denies what it cannot match against a policy that fails, whatever the binding's actions are. */ -}}
{{- $policy = set $policy "failurePolicy" "Ignore" }}
{{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "gpushare.labels" $root | nindent 4 }}
spec:
  {{- toYaml $policy | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "gpushare.labels" $root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions:
    {{- toYaml (index . 3) | nindent 4 }}
  {{- include "gpushare.bound" $root | nindent 2 }}
{{- end }}

{{/*
Variables of a policy, as JSON: a list of constant maps, since an expression has at most 100,000 characters. JSON maps of text are CEL's
as well. Takes (name, entries).
*/}}
{{- define "gpushare.parts" -}}
{{- $name := index . 0 }}
{{- $variables := list }}
{{- $names := list }}
{{- $part := dict }}
{{- $room := 90000 }}
{{- range $key, $text := index . 1 }}
{{- $needed := add (len $key) (len $text) 6 | int }}
{{- if gt $needed $room }}
{{- $variables = append $variables (dict "name" (printf "%s%d" $name (len $names)) "expression" (toRawJson $part)) }}
{{- $names = append $names (printf "variables.%s%d" $name (len $names)) }}
{{- $part = dict }}
{{- $room = 90000 }}
{{- end }}
{{- $_ := set $part $key $text }}
{{- $room = sub $room $needed | int }}
{{- end }}
{{- $variables = append $variables (dict "name" (printf "%s%d" $name (len $names)) "expression" (toRawJson $part)) }}
{{- $names = append $names (printf "variables.%s%d" $name (len $names)) }}
{{- append $variables (dict "name" $name "expression" (printf "[%s]" (join ", " $names))) | toRawJson }}
{{- end }}

{{/*
What the policies look up; admission/pods.yaml explains the keys. Takes the root.
*/}}
{{- define "gpushare.lookups" -}}
{{- $found := dict "ambiguous" (join " " .Values.admission.ambiguous) }}
{{- $shares := list }}
{{- $limited := dict }}
{{- range $name, $pool := .Values.pools }}
{{- $_ := set $found (printf "pool.%s" $name) (join " " $pool.resources) }}
{{- with $pool.sharedResources }}
{{- $_ := set $found (printf "shares.%s" $name) (join " " .) }}
{{- $shares = concat $shares . | uniq }}
{{- end }}
{{- if $pool.namespaces }}
{{- $_ := set $found (printf "limited.%s" $name) "true" }}
{{- range $pool.namespaces }}
{{- $key := printf "namespace.%s" . }}
{{- $_ := set $found $key (printf "%s %s" (get $found $key) $name | trim) }}
{{- end }}
{{- range $pool.resources }}
{{- $_ := set $limited . (get $limited . | default 0 | add1) }}
{{- end }}
{{- end }}
{{- range $pool.resources }}
{{- if or $pool.default (hasPrefix "deviceclass.resource.kubernetes.io/" .) }}
{{- $_ := set $found (printf "default.%s" .) $name }}
{{- end }}
{{- end }}
{{- range $key, $text := $pool.claims }}
{{- $_ := set $found $key $text }}
{{- end }}
{{- end }}
{{- range $key, $text := (.Values.dra | default dict).former }}
{{- $known := hasPrefix "namespace." $key | ternary (get $found $key) "" }}
{{- $_ := set $found $key (printf "%s %s" $known $text | trim) }}
{{- end }}
{{- range $resource, $number := $limited }}
{{- $_ := set $found (printf "count.%s" $resource) (toString $number) }}
{{- end }}
{{- $_ := set $found "limited" (keys $limited | sortAlpha | join " ") }}
{{- $_ := set $found "shares" (join " " (sortAlpha $shares)) }}
{{- include "gpushare.parts" (list "lookups" $found) }}
{{- end }}

{{/*
The policy on what reaches devices, as JSON. Takes (root, whether it judges tenants, whether it judges others).
*/}}
{{- define "gpushare.devices" -}}
{{- $values := (index . 0).Values }}
{{- $policy := (index . 0).Files.Get "admission/devices.yaml" | fromYaml }}
{{- $tenants := dict }}
{{- range include "gpushare.tenantNamespaces" (index . 0) | fromJsonArray }}
{{- $_ := set $tenants . "" }}
{{- end }}
{{- $given := list (dict "name" "judgesTenants" "expression" (toString (index . 1))) }}
{{- $given = append $given (dict "name" "judgesOthers" "expression" (toString (index . 2))) }}
{{- $given = concat $given (include "gpushare.parts" (list "tenants" $tenants) | fromJsonArray) }}
{{- $given = append $given (dict "name" "localhostProfiles" "expression" (toRawJson $values.admission.localhostProfiles)) }}
{{- $own := empty $values.runtimeClassName | ternary list (list $values.runtimeClassName) }}
{{- $given = append $given (dict "name" "runtimeClassNames" "expression" (toRawJson $own)) }}
{{- set $policy "variables" (concat $given $policy.variables) | toRawJson }}
{{- end }}
