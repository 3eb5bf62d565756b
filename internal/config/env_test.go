package config

import (
	"slices"
	"strings"
	"testing"
)

// TestVariables sets each variable alone and looks where it arrives.
func TestVariables(t *testing.T) {
	t.Parallel()
	values := []struct{ name, value, key, want string }{
		{"TUNDISH_REVISION", "3", "revision", "3"},
		{"TUNDISH_REDIS_URL", "redis://u:hunter2@db/1", "redis.url", `"redis://u:***@db/1"`},
		{"TUNDISH_REDIS_URL_FILE", "/url", "redis.url", `"rediss://:***@db"`},
		{"TUNDISH_REDIS_EMBEDDED_LISTEN", "[::1]:0", "redis.embedded_listen", `"[::1]:0"`},
		{"TUNDISH_REDIS_PASSWORD", "hunter2", "redis.password", `"***"`},
		{"TUNDISH_REDIS_PASSWORD_FILE", "/secret", "redis.password", `"***"`},
		{"TUNDISH_REDIS_SENTINEL_PASSWORD", "hunter2", "redis.sentinel_password", `"***"`},
		{"TUNDISH_REDIS_SENTINEL_PASSWORD_FILE", "/secret", "redis.sentinel_password", `"***"`},
		{"TUNDISH_REDIS_TLS_CA", "ca.pem", "redis.tls_ca", `"ca.pem"`},
		{"TUNDISH_REDIS_TLS_CERT", "cert.pem", "redis.tls_cert", `"cert.pem"`},
		{"TUNDISH_REDIS_TLS_KEY", "key.pem", "redis.tls_key", `"key.pem"`},
		{"TUNDISH_REDIS_TLS_SERVER_NAME", "db", "redis.tls_server_name", `"db"`},
		{"TUNDISH_REDIS_FUNCTIONS", "false", "redis.functions", "false"},
		{"TUNDISH_REDIS_POOL_SIZE", "5", "redis.pool_size", "5"},
		{"TUNDISH_REDIS_TIMEOUT", "1500ms", "redis.timeout", `"1.5s"`},
		{"TUNDISH_PRODUCER_LISTEN", "localhost:9000", "producer.listen", `"localhost:9000"`},
		{"TUNDISH_PRODUCER_SHUTDOWN_TIMEOUT", "1h", "producer.shutdown_timeout", `"1h"`},
		{"TUNDISH_PRODUCER_STORE_TIMEOUT", "2s", "producer.store_timeout", `"2s"`},
		{"TUNDISH_PRODUCER_TRUSTED_PROXIES", "10.0.0.0/8, ::1", "producer.trusted_proxies", `["10.0.0.0/8", "::1/128"]`},
		{"TUNDISH_PRODUCER_FORWARDED_HEADER", "forwarded", "producer.forwarded_header", `"forwarded"`},
		{"TUNDISH_PRODUCER_IPV6_PREFIX", "56", "producer.ipv6_prefix", "56"},
		{"TUNDISH_PRODUCER_RATE_LIMIT_HEADERS", "legacy", "producer.rate_limit_headers", `"legacy"`},
		{"TUNDISH_PRODUCER_BODY_MEMORY", "128MiB", "producer.body_memory", `"128MiB"`},
		{"TUNDISH_PRODUCER_MAX_CONNECTIONS", "100", "producer.max_connections", "100"},
		{"TUNDISH_PRODUCER_OPERATOR_API", "true", "producer.operator_api", "true"},
		{"TUNDISH_DISPATCHER_LISTEN", "127.0.0.2:9", "dispatcher.listen", `"127.0.0.2:9"`},
		{"TUNDISH_DISPATCHER_CONCURRENCY", "1", "dispatcher.concurrency", "1"},
		{"TUNDISH_DISPATCHER_LEASE", "90s", "dispatcher.lease", `"1m30s"`},
		{"TUNDISH_PRODUCER_IDLE_TIMEOUT", "5m", "producer.idle_timeout", `"5m"`},
		{"TUNDISH_DISPATCHER_IDLE_TIMEOUT", "5m", "dispatcher.idle_timeout", `"5m"`},
		{"TUNDISH_DISPATCHER_SHUTDOWN_TIMEOUT", "0s", "dispatcher.shutdown_timeout", `"0s"`},
		{"TUNDISH_CONSOLE_ENABLED", "false", "console.enabled", "false"},
		{"TUNDISH_CONSOLE_NAME", "staging", "console.name", `"staging"`},
		{"TUNDISH_CONSOLE_COLOUR", "red", "console.colour", `"red"`},
		{"TUNDISH_CONSOLE_PAYLOADS", "hide", "console.payloads", `"hide"`},
		{"TUNDISH_CONSOLE_PUBLIC_URL", "https://ops.example.com/tundish", "console.public_url", `"https://ops.example.com/tundish"`},
		{"TUNDISH_CONSOLE_TRUSTED_PROXIES", "10.0.0.0/8", "console.trusted_proxies", `["10.0.0.0/8"]`},
		{"TUNDISH_CONSOLE_USER_HEADER", "X-User", "console.user_header", `"X-User"`},
		{"TUNDISH_CONSOLE_USER_KEY", "ops", "console.user_key", `"ops"`},
		{"TUNDISH_LOG_LEVEL", "debug", "log.level", `"debug"`},
		{"TUNDISH_LOG_FORMAT", "json", "log.format", `"json"`},
		{"TUNDISH_TRACING_RELATION", "parent", "tracing.relation", `"parent"`},
	}
	var names []string
	for _, v := range values {
		names = append(names, v.name)
		for _, file := range []string{"", overridden} {
			env := []string{v.name + "=" + v.value}
			if strings.HasPrefix(v.name, "TUNDISH_REDIS_TLS_") { // has no meaning alone
				env = append([]string{"TUNDISH_REDIS_URL=rediss://db", "TUNDISH_REDIS_TLS_CERT=c", "TUNDISH_REDIS_TLS_KEY=k"}, env...)
			}
			if strings.HasPrefix(v.name, "TUNDISH_CONSOLE_") { // the same
				file += "[[keys]]\nname = \"ops\"\nsha256 = \"" + strings.Repeat("a", 64) + "\"\nroles = [\"read\"]\n"
				env = append([]string{"TUNDISH_CONSOLE_NAME=a", "TUNDISH_CONSOLE_TRUSTED_PROXIES=::1", "TUNDISH_CONSOLE_USER_HEADER=X", "TUNDISH_CONSOLE_USER_KEY=ops"}, env...)
			}
			c, err := Load(Options{Env: env, ReadFile: files(map[string]string{
				"config.toml": file, "/secret": "hunter2\n", "/url": "rediss://:hunter2@db\r\n",
			})})
			if err != nil {
				t.Errorf("%s: %v", v.name, err)
				continue
			}
			got := settingAt(c, v.key)
			if want := (Setting{v.key, v.want, "env " + v.name}); got != want {
				t.Errorf("%s: got %+v, want %+v", v.name, got, want)
			}
		}
	}
	slices.Sort(names)
	known := Variables()
	slices.Sort(known)
	if !slices.Equal(names, known) {
		t.Errorf("tested are\n%q, known\n%q", names, known)
	}
}

// overridden sets keys that variables override.
const overridden = `
revision = 1
[redis]
url = "redis://other"
timeout = "2s"
[dispatcher]
lease = "20s"
`

func settingAt(c *Config, key string) Setting {
	for _, s := range c.Effective() {
		if s.Key == key {
			return s
		}
	}
	return Setting{}
}

func TestVariableFaults(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ name, env, want string }{
		{"no unit", "TUNDISH_REDIS_TIMEOUT=5", `env TUNDISH_REDIS_TIMEOUT: redis.timeout: "5": want a duration with a unit (ms, s, m, h, d), such as "30s" or "3d"`},
		{"no number", "TUNDISH_REVISION=1.5", `env TUNDISH_REVISION: revision: "1.5": want a whole number`},
		{"out of range", "TUNDISH_DISPATCHER_LEASE=2h", `env TUNDISH_DISPATCHER_LEASE: dispatcher.lease: "2h": want 1s to 1h`},
		{"bad secret", "TUNDISH_REDIS_URL=hunter2", `env TUNDISH_REDIS_URL: redis.url: "***": want "embedded", "redis://host:6379/0", "redis+sentinel://h1:26379,h2:26379/master" or "redis+cluster://h1:6379,h2:6379", or the same with rediss for TLS`},
		{"unknown", "TUNDISH_REDIS_PASWORD=x", `env TUNDISH_REDIS_PASWORD: is not a known variable; did you mean "TUNDISH_REDIS_PASSWORD"?`},
		{"no such section", "TUNDISH_FOO=x", `env TUNDISH_FOO: is not a known variable`},
		{"another array", "TUNDISH_POOLS_0_RATE=1/s", `env TUNDISH_POOLS_0_RATE: keys, limits, pools and buckets are set in the file only`},
		{"array", "TUNDISH_BUCKETS_0_RATE=1/s", `env TUNDISH_BUCKETS_0_RATE: keys, limits, pools and buckets are set in the file only`},
		{"an address in a list", "TUNDISH_PRODUCER_TRUSTED_PROXIES=10.0.0.0/8,x", `env TUNDISH_PRODUCER_TRUSTED_PROXIES: producer.trusted_proxies[1]: "x": want a network, such as "10.0.0.0/8" or "::1/128"`},
		{"both", "TUNDISH_REDIS_PASSWORD=a TUNDISH_REDIS_PASSWORD_FILE=/secret", `env TUNDISH_REDIS_PASSWORD: redis.password: TUNDISH_REDIS_PASSWORD_FILE is set as well: choose one`},
		{"no secret file", "TUNDISH_REDIS_URL_FILE=/no", `env TUNDISH_REDIS_URL_FILE: redis.url: cannot be read: open /no: file does not exist`},
		{"a port that is none of a service", "TUNDISH_REDIS_PORT=6379", `env TUNDISH_REDIS_PORT: is not a known variable; did you mean "TUNDISH_REDIS_URL"?`},
		{"in order", "TUNDISH_REVISION=x TUNDISH_LOG_LEVEL=x", "env TUNDISH_LOG_LEVEL: log.level: \"x\": want debug, info, warn, error\nenv TUNDISH_REVISION: revision: \"x\": want a whole number"},
	} {
		_, err := load("", strings.Fields(try.env)...)
		if err == nil || err.Error() != try.want {
			t.Errorf("%s: got %v, want %s", try.name, err, try.want)
		}
	}
}

func TestIgnoredVariables(t *testing.T) {
	t.Parallel()
	mustLoad(t, "",
		"HOME=/root", "TUNDISH_TEST_REDIS=x", "TUNDISH_CONFIG=config.toml", "TUNDISH_REDIS_URL=", "TUNDISH_KEY=x", "TUNDISH_KEY_FILE=/x",
		// What Kubernetes sets beside services named tundish and tundish-producer.
		"TUNDISH_SERVICE_HOST=10.0.0.1", "TUNDISH_SERVICE_PORT=80", "TUNDISH_PRODUCER_SERVICE_PORT_HTTP=8080",
		"TUNDISH_PORT=tcp://10.0.0.1:80", "TUNDISH_PRODUCER_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"TUNDISH_PRODUCER_PORT_8080_TCP_ADDR=10.0.0.1",
	)
}

func TestFileAndEnvironmentFaultsTogether(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ name, text, want string }{
		{"keys", "[redis]\ntimeout = 1\nx = 2\n", `config.toml:2: redis.timeout: 1: want a duration with a unit (ms, s, m, h, d), such as "30s" or "3d"
config.toml:3: redis.x: is not a known key
env TUNDISH_NOSUCH: is not a known variable
env TUNDISH_REDIS_TIMEOUT: redis.timeout: "1m": want 100ms to 10s`},
		{"syntax", "x", `config.toml:1:1: expected '=' after key
env TUNDISH_NOSUCH: is not a known variable
env TUNDISH_REDIS_TIMEOUT: redis.timeout: "1m": want 100ms to 10s`},
	} {
		_, err := load(try.text, "TUNDISH_NOSUCH=1", "TUNDISH_REDIS_TIMEOUT=1m")
		if err == nil || err.Error() != try.want {
			t.Errorf("%s: got\n%v, want\n%s", try.name, err, try.want)
		}
	}
}
