{{/*
A number as the API server writes it back: 2000 becomes 2k. Server-side apply compares the texts, so another spelling is a
conflict for every second field manager. Takes the number.
*/}}
{{- define "gpushare.quantity" -}}
{{- $number := int64 . -}}
{{- $suffix := "" -}}
{{- range list "k" "M" "G" "T" "P" -}}
{{- if and $number (eq 0 (mod $number 1000 | int)) -}}
{{- $number = div $number 1000 -}}
{{- $suffix = . -}}
{{- end -}}
{{- end -}}
{{- printf "%d%s" $number $suffix -}}
{{- end }}
