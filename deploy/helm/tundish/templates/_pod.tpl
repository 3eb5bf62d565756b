{{/* 90 % of a limit of memory: the garbage collector works harder before the kernel kills the container. Takes a quantity in Mi or Gi. */}}
{{- define "tundish.goMemLimit" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- if hasSuffix "Gi" . -}}{{- $number = mul $number 1024 -}}{{- end -}}
{{- div (mul $number 90) 100 -}}MiB
{{- end -}}

{{/* What every container of Tundish has: the same configuration, from the same places. Takes (list $ component). */}}
{{- define "tundish.container" -}}
{{- $ := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := get $.Values $component -}}
{{- $redis := $.Values.redis -}}
image: {{ include "tundish.image" $ | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
env:
  - name: TUNDISH_CONFIG
    value: /etc/tundish/config.toml
  - name: TUNDISH_DISPATCHER_LISTEN
    value: ":{{ include "tundish.port" "dispatcher" }}"
  - name: TUNDISH_PRODUCER_LISTEN
    value: ":{{ include "tundish.port" "producer" }}"
  - name: TUNDISH_DISPATCHER_SHUTDOWN_TIMEOUT
    value: {{ int $.Values.dispatcher.shutdownTimeoutSeconds }}s
  - name: TUNDISH_PRODUCER_SHUTDOWN_TIMEOUT
    value: {{ int $.Values.producer.shutdownTimeoutSeconds }}s
  {{- if $redis.url }}
  - name: TUNDISH_REDIS_URL
    value: {{ $redis.url | quote }}
  {{- end }}
  {{- range $variable, $key := dict "URL" $redis.secret.urlKey "PASSWORD" $redis.secret.passwordKey "SENTINEL_PASSWORD" $redis.secret.sentinelPasswordKey }}
  {{- if $key }}
  - name: TUNDISH_REDIS_{{ $variable }}_FILE
    value: /run/secrets/tundish-redis/{{ $key }}
  {{- end }}
  {{- end }}
  {{- if or $redis.ca.configMap $redis.ca.secret }}
  - name: TUNDISH_REDIS_TLS_CA
    value: /etc/tundish-redis-ca/{{ $redis.ca.key }}
  {{- end }}
  - name: GOMEMLIMIT
    value: {{ include "tundish.goMemLimit" $values.resources.limits.memory }}
  {{- with $.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  # The whole folder: with a subPath a running pod would never see a change.
  - name: config
    mountPath: /etc/tundish
    readOnly: true
  {{- if $redis.secret.name }}
  - name: redis-secret
    mountPath: /run/secrets/tundish-redis
    readOnly: true
  {{- end }}
  {{- if or $redis.ca.configMap $redis.ca.secret }}
  - name: redis-ca
    mountPath: /etc/tundish-redis-ca
    readOnly: true
  {{- end }}
  {{- with $.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What every pod of Tundish has. */}}
{{- define "tundish.podSpec" -}}
serviceAccountName: {{ include "tundish.serviceAccount" . }}
automountServiceAccountToken: false
# The addresses of other services, which Kubernetes would set as variables, are of no use here.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.podSecurity.runAsUser }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- with .Values.podSecurity.runAsGroup }}
  runAsGroup: {{ int64 . }}
  {{- end }}
  {{- with .Values.podSecurity.fsGroup }}
  # So that the user can read the files of Secrets, which are of root.
  fsGroup: {{ int64 . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "tundish.fullname" . }}
  {{- with .Values.redis.secret.name }}
  - name: redis-secret
    secret:
      secretName: {{ . }}
      defaultMode: 0440
  {{- end }}
  {{- with .Values.redis.ca.configMap }}
  - name: redis-ca
    configMap:
      name: {{ . }}
  {{- end }}
  {{- with .Values.redis.ca.secret }}
  - name: redis-ca
    secret:
      secretName: {{ . }}
      defaultMode: 0440
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
