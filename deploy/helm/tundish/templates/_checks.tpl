{{/* Refuses values that the schema cannot judge. Each sentence names the value and what to do. */}}
{{- define "tundish.checks" -}}
{{- include "tundish.checkConfig" . -}}
{{- include "tundish.checkMemory" . -}}
{{- include "tundish.checkRedis" . -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^(GOMEMLIMIT|TUNDISH_(CONFIG|REDIS_(URL|PASSWORD|SENTINEL_PASSWORD)(_FILE)?|REDIS_TLS_CA|(PRODUCER|DISPATCHER)_(LISTEN|SHUTDOWN_TIMEOUT)))$" .name -}}
{{- fail (printf "extraEnv has %s, which the chart sets: remove it, and set the values redis, shutdownTimeoutSeconds and resources instead" .name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.keySecret.name) -}}
{{- fail "serviceMonitor.keySecret.name is empty: /metrics wants an API key with the role read, as there are [[keys]]: name a Secret that has it" -}}
{{- end -}}
{{- with .Values.producer.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "producer.autoscaling.minReplicas is %d, more than the maxReplicas %d: lower it or raise maxReplicas" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of bytes as the configuration has it, such as "128MiB" or 134217728, in MiB. */}}
{{- define "tundish.mebibytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text | float64 -}}
{{- if hasSuffix "GiB" $text -}}{{- mulf $number 1024 | ceil | int64 -}}
{{- else if hasSuffix "MiB" $text -}}{{- $number | ceil | int64 -}}
{{- else if hasSuffix "KiB" $text -}}{{- divf $number 1024 | ceil | int64 -}}
{{- else -}}{{- divf $number 1048576 | ceil | int64 -}}
{{- end -}}
{{- end -}}

{{/* Bodies of requests may fill producer.body_memory. Beside them a producer needs 64 MiB: GOMEMLIMIT has to leave room for both, or one request kills the pod. */}}
{{- define "tundish.checkMemory" -}}
{{- $producer := get (fromToml .Values.config) "producer" | default dict -}}
{{- $bodies := include "tundish.mebibytes" (get $producer "body_memory" | default "128MiB") | int -}}
{{- $limit := include "tundish.goMemLimit" .Values.producer.resources.limits.memory | trimSuffix "MiB" | int -}}
{{- if gt (add $bodies 64) $limit -}}
{{- fail (printf "producer.resources.limits.memory is %s, of which Go uses %d MiB: producer.body_memory is %d MiB, and a producer needs 64 MiB more. Lower body_memory in the configuration, or raise the limit" .Values.producer.resources.limits.memory $limit $bodies) -}}
{{- end -}}
{{- end -}}

{{/* The settings of the configuration that decide what a pod looks like are values: the port of a probe and the grace period follow from them. A second
     place for them would be wrong one day. */}}
{{- define "tundish.checkConfig" -}}
{{- $config := fromToml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is no TOML: %s. `dispatcher config check` tells more" $config.Error) -}}
{{- end -}}
{{- range $path, $instead := dict
  "redis.url" "set the value redis.url or redis.secret.urlKey"
  "redis.password" "set the value redis.secret.passwordKey"
  "redis.sentinel_password" "set the value redis.secret.sentinelPasswordKey"
  "redis.tls_ca" "set the value redis.ca"
  "dispatcher.listen" "pods listen on port 8081 of all their addresses"
  "producer.listen" "pods listen on port 8080 of all their addresses"
  "dispatcher.shutdown_timeout" "set the value dispatcher.shutdownTimeoutSeconds, from which the grace period of a pod follows"
  "producer.shutdown_timeout" "set the value producer.shutdownTimeoutSeconds, from which the grace period of a pod follows"
-}}
{{- $names := splitList "." $path -}}
{{- $table := get $config (index $names 0) -}}
{{- if and (kindIs "map" $table) (hasKey $table (index $names 1)) -}}
{{- $value := get $table (index $names 1) -}}
{{- $shown := ternary "" (printf " = %q" (toString $value)) (hasPrefix "redis." $path) -}}
{{- fail (printf "config has %s%s, which the chart sets: remove the line; %s" $path $shown $instead) -}}
{{- end -}}
{{- end -}}
{{- if not (get $config "keys") -}}
{{- fail "config has no [[keys]]: pods listen beyond loopback, and every program that reaches one could use it. `producer key new ops --role admin --bucket '*'` prints the table. Set the configuration with --set-file config=tundish.toml" -}}
{{- end -}}
{{- include "tundish.checkSecrets" (list "" "" $config) -}}
{{- end -}}

{{/* Refuses a secret that is written out. Arguments: the path of a value in the configuration, its key, and the value. */}}
{{- define "tundish.checkSecrets" -}}
{{- $path := index . 0 -}}
{{- $key := index . 1 -}}
{{- $value := index . 2 -}}
{{- if kindIs "map" $value -}}
{{- range $name, $inner := $value -}}
{{- if ne $name "payload" -}}
{{- include "tundish.checkSecrets" (list (ternary $name (printf "%s.%s" $path $name) (eq $path "")) $name $inner) -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- range $i, $inner := $value -}}
{{- include "tundish.checkSecrets" (list (printf "%s[%d]" $path $i) $key $inner) -}}
{{- end -}}
{{- else if and (kindIs "string" $value) $value (not (regexMatch "^(env|file):" $value)) -}}
{{- $isSecret := or (regexMatch "^(secrets|bearer|password|client_secret)$" $key) (hasSuffix "auth.header.value" $path) -}}
{{- $isSecret = or $isSecret (and (regexMatch "(^|\\.)headers\\.[^.]*$" $path) (regexMatch "(?i)^((proxy-)?authorization|cookie)$|key|token|secret|password" $key)) -}}
{{- if or $isSecret (regexMatch "://[^/@]*:[^/@]*@" $value) -}}
{{- fail (printf "config has a secret written out at %s, and everybody who may read the ConfigMap would see it: put it into a Secret, write \"env:NAME\" or \"file:/path\" there, and set extraEnv, or extraVolumes and extraVolumeMounts" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tundish.checkRedis" -}}
{{- with .Values.redis -}}
{{- if and .url .secret.urlKey -}}
{{- fail "redis.url and redis.secret.urlKey are both set: choose one" -}}
{{- else if not (or .url .secret.urlKey) -}}
{{- fail "redis.url is empty: name your Redis, such as rediss://tundish@redis.example.com:6379/0, or a key of a Secret with redis.secret.urlKey" -}}
{{- else if eq .url "embedded" -}}
{{- fail "redis.url is \"embedded\", a store in the memory of one pod: all jobs are gone when it stops, and no other pod sees them. Name a Redis with appendonly yes" -}}
{{- else if regexMatch "://[^/@]*:[^/@]*@" .url -}}
{{- fail "redis.url has a password, and everybody who may read the Deployment would see it: put it into a Secret, and set redis.secret.name and redis.secret.passwordKey" -}}
{{- end -}}
{{- if and (or .secret.urlKey .secret.passwordKey .secret.sentinelPasswordKey) (not .secret.name) -}}
{{- fail "redis.secret.name is empty, and redis.secret has a key: name the Secret" -}}
{{- else if and .secret.name (not (or .secret.urlKey .secret.passwordKey .secret.sentinelPasswordKey)) -}}
{{- fail (printf "redis.secret has the name %q and no key: set urlKey or passwordKey to a key of the Secret" .secret.name) -}}
{{- end -}}
{{- range $port := regexFindAll ":[0-9]+" (regexReplaceAll "^[^/]*//([^/@]*@)?(\\[[^]]*\\])?" .url "" | splitList "/" | first) -1 -}}
{{- $port = trimPrefix ":" $port | int -}}
{{- $open := list -}}
{{- range $.Values.networkPolicy.redisPorts -}}{{- $open = append $open (int .) -}}{{- end -}}
{{- if and $.Values.networkPolicy.enabled (not (has $port $open)) -}}
{{- fail (printf "redis.url has the port %d, to which networkPolicy.redisPorts lets no pod connect: add it there" $port) -}}
{{- end -}}
{{- end -}}
{{- if and .ca.configMap .ca.secret -}}
{{- fail "redis.ca.configMap and redis.ca.secret are both set: choose one" -}}
{{- end -}}
{{- end -}}
{{- end -}}
