package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bad value is refused with a sentence that names it. Each is added to values that are good.
func TestBadValues(t *testing.T) {
	t.Parallel()
	const keys = "[[keys]]\nname = \"a\"\n"
	for name, test := range map[string]struct{ values, want string }{
		"unknown":                       {"replicas: 3", `'replicas' not allowed`},
		"unknown within":                {"dispatcher: {replica: 3}", `at '/dispatcher': additional properties 'replica' not allowed`},
		"a text for a number":           {`dispatcher: {replicas: "3"}`, `at '/dispatcher/replicas': got string, want null or integer`},
		"a number for a text":           {"redis: {url: 6379}", `at '/redis/url': got number, want string`},
		"a text for a bool":             {`networkPolicy: {enabled: "yes"}`, `at '/networkPolicy/enabled': got string, want boolean`},
		"a text for a list":             {"extraEnv: none", `at '/extraEnv': got string, want array`},
		"a digest that is none":         {"image: {digest: latest}", `at '/image/digest': 'latest' does not match pattern`},
		"a Redis of another kind":       {"redis: {url: http://redis}", `at '/redis/url'`},
		"no limit of memory":            {"producer: {resources: {limits: {memory: null}}}", `at '/producer/resources/limits'`},
		"a limit in another unit":       {"producer: {resources: {limits: {memory: 1G}}}", `at '/producer/resources/limits/memory'`},
		"a name of 64 letters":          {"fullnameOverride: " + strings.Repeat("a", 64), `at '/fullnameOverride'`},
		"a name of capitals":            {"fullnameOverride: Tundish", `at '/fullnameOverride'`},
		"a label of Kubernetes":         {"labels: {app.kubernetes.io/name: mine}", `invalid propertyName 'app.kubernetes.io/name'`},
		"no sleep":                      {"preStopSleepSeconds: 0", `at '/preStopSleepSeconds'`},
		"a stop above an hour":          {"dispatcher: {shutdownTimeoutSeconds: 3601}", `at '/dispatcher/shutdownTimeoutSeconds'`},
		"a grace period":                {"terminationGracePeriodSeconds: 10", `'terminationGracePeriodSeconds' not allowed`},
		"no configuration":              {`config: ""`, "config has no [[keys]]"},
		"no keys":                       {config("[[buckets]]\nname = \"a\""), "config has no [[keys]]: pods listen beyond loopback, and every program that reaches one could use it. `producer key new"},
		"keys of no length":             {config("keys = []"), "config has no [[keys]]"},
		"no TOML":                       {config("buckets:\n  - name: a"), "config is no TOML: "},
		"a shutdown_timeout":            {config("dispatcher.shutdown_timeout = \"10m\"\n" + keys), `config has dispatcher.shutdown_timeout = "10m", which the chart sets: remove the line; set the value dispatcher.shutdownTimeoutSeconds, from which the grace period`},
		"a shutdown_timeout in a table": {config("[producer]\nshutdown_timeout = \"1m\"\n" + keys), `config has producer.shutdown_timeout = "1m"`},
		"a shutdown_timeout by env":     {"extraEnv: [{name: TUNDISH_DISPATCHER_SHUTDOWN_TIMEOUT, value: 10m}]", "extraEnv has TUNDISH_DISPATCHER_SHUTDOWN_TIMEOUT, which the chart sets"},
		"loopback":                      {config("[producer]\nlisten = \"127.0.0.1:8080\"\n" + keys), `config has producer.listen = "127.0.0.1:8080", which the chart sets: remove the line; pods listen on port 8080 of all`},
		"loopback of the dispatcher":    {config("dispatcher = { listen = \"localhost:8081\" }\n" + keys), `config has dispatcher.listen = "localhost:8081"`},
		"no memory for bodies":          {"producer: {resources: {limits: {memory: 128Mi}}}", "producer.resources.limits.memory is 128Mi, of which Go uses 115 MiB: producer.body_memory is 128 MiB, and a producer needs 64 MiB more"},
		"bodies beyond the memory":      {config("[producer]\nbody_memory = \"1GiB\"\n" + keys), "producer.body_memory is 1024 MiB, and a producer needs 64 MiB more. Lower body_memory in the configuration"},
		"loopback by env":               {"extraEnv: [{name: TUNDISH_PRODUCER_LISTEN, value: '127.0.0.1:8080'}]", "extraEnv has TUNDISH_PRODUCER_LISTEN"},
		"a Redis in the configuration":  {config("redis.url = \"redis://u:hunter2@redis:6379\"\n" + keys), `config has redis.url, which the chart sets: remove the line; set the value redis.url`},
		"a password in it":              {config("redis.password = \"hunter2\"\n" + keys), `config has redis.password, which the chart sets`},
		"a Redis without persistence":   {"redis: {url: embedded}", `redis.url is "embedded", a store in the memory of one pod: all jobs are gone when it stops`},
		"no Redis":                      {`redis: {url: ""}`, "redis.url is empty: name your Redis"},
		"two of Redis":                  {"redis: {url: redis://redis, secret: {name: a, urlKey: b}}", "redis.url and redis.secret.urlKey are both set"},
		"a password in the URL":         {"redis: {url: 'redis://tundish:hunter2@redis:6379'}", "redis.url has a password"},
		"a key of no Secret":            {"redis: {secret: {passwordKey: a}}", "redis.secret.name is empty, and redis.secret has a key"},
		"a Secret without a key":        {"redis: {secret: {name: a}}", `redis.secret has the name "a" and no key`},
		"two authorities":               {"redis: {ca: {configMap: a, secret: b}}", "redis.ca.configMap and redis.ca.secret are both set"},
		"a port that is closed":         {"redis: {url: 'redis+sentinel://h1:26379,h2:26379/m'}", "redis.url has the port 26379, to which networkPolicy.redisPorts lets no pod connect"},
		"a secret of webhooks":          {config(keys + "[[buckets]]\nname = \"a\"\nwebhook.secrets = [\"env:OLD\", \"hunter2\"]"), "config has a secret written out at buckets[0].webhook.secrets[1]"},
		"a bearer":                      {config(keys + "[[buckets]]\nhttp = { base_url = \"https://a\", auth.bearer = \"hunter2\" }"), "written out at buckets[0].http.auth.bearer,"},
		"a header of credentials":       {config(keys + "[[buckets]]\nllm.auth.header = { name = \"x-api-key\", value = \"hunter2\" }"), "written out at buckets[0].llm.auth.header.value,"},
		"a client's secret":             {config(keys + "[buckets.http.auth.oauth2]\nclient_secret = \"hunter2\""), "written out at buckets.http.auth.oauth2.client_secret,"},
		"a password of basic":           {config(keys + "[[buckets]]\nhttp.auth.basic = { user = \"u\", password = \"hunter2\" }"), "written out at buckets[0].http.auth.basic.password,"},
		"a header that has a key":       {config(keys + "[[buckets]]\nhttp.headers = { Accept = \"a/b\", X-Api-Key = \"hunter2\" }"), "written out at buckets[0].http.headers.X-Api-Key,"},
		"an egress proxy's password":    {config(keys + "[[buckets]]\nwebhook.egress_proxy = \"http://u:hunter2@proxy:3128\""), "written out at buckets[0].webhook.egress_proxy,"},
		"no key for a scrape":           {"serviceMonitor: {enabled: true}", "serviceMonitor.keySecret.name is empty: /metrics wants an API key with the role read"},
		"fewest above most":             {"producer: {autoscaling: {enabled: true, minReplicas: 11}}", "producer.autoscaling.minReplicas is 11, more than the maxReplicas 10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := filepath.Join(t.TempDir(), "bad.yaml")
			if err := os.WriteFile(bad, []byte(test.values), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, helm := range helms {
				text, err := template(t.Context(), helm, "queue", "--values", "testdata/values/minimal.yaml", "--values", bad)
				if err == nil {
					t.Fatalf("%s refuses nothing:\n%s", helm, text)
				}
				if said := err.Error(); !strings.Contains(said, test.want) || strings.Contains(said, "hunter2") {
					t.Errorf("%s: %s\nwant: %s", helm, said, test.want)
				}
			}
		})
	}
}

// config is a value of the chart with a configuration.
func config(toml string) string {
	return "config: |\n  " + strings.ReplaceAll(toml, "\n", "\n  ")
}
