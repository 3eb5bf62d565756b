{{/* The name of all objects. The longest end is "-dispatcher", and a name has 63 letters at most. A name that is cut gets
     a part of its hash, so two long names that begin alike stay two. */}}
{{- define "tundish.fullname" -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-tundish" .Release.Name) (contains "tundish" .Release.Name)) -}}
{{- if gt (len $name) 52 -}}
{{- $name = printf "%s-%s" ($name | trunc 43 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* What a selector selects by: it never changes. Takes (list $ component). */}}
{{- define "tundish.selector" -}}
app.kubernetes.io/name: tundish
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object. Takes (list $ component). */}}
{{- define "tundish.labels" -}}
{{- $ := index . 0 -}}
{{ include "tundish.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | trunc 63 }}
{{- with $.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tundish.serviceAccount" -}}
{{- .Values.serviceAccount.existing | default (include "tundish.fullname" .) -}}
{{- end -}}

{{- define "tundish.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of a program. Takes its name. */}}
{{- define "tundish.port" -}}
{{- get (dict "dispatcher" "8081" "producer" "8080") . -}}
{{- end -}}
