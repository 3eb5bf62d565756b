package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	c := must.Get(Load(Options{ReadFile: files(nil)}))(t)
	s := defaultSettings()
	if c.Redis != s.Redis || !reflect.DeepEqual(c.Producer, s.Producer) || c.Dispatcher != s.Dispatcher || c.Log != s.Log {
		t.Errorf("got %+v, want the defaults", c)
	}
	if len(c.Buckets) != 0 || len(c.Limits) != 0 || c.File != "" {
		t.Errorf("got %+v, want no buckets, limits, file", c)
	}
	if !c.Redis.URL.Embedded() {
		t.Errorf("redis.url is %q", c.Redis.URL)
	}
}

func TestLoadMissingFile(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"by option":   {Path: "no.toml"},
		"by variable": {Env: []string{"TUNDISH_CONFIG=no.toml"}},
	} {
		o.ReadFile = files(map[string]string{"config.toml": ""})
		_, err := Load(o)
		if want := "no.toml: cannot be read: file does not exist"; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/c.toml"
	must.OK(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	for path, want := range map[string]string{
		path:               "has more than",
		t.TempDir():        "is a directory",
		path + "-not-here": "no such file",
	} {
		if _, err := Load(Options{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

const full = `
revision = 7
[redis]
url = "rediss://app:hunter2@db:6380/2"
[producer]
listen = ":8080"
trusted_proxies = ["10.0.0.0/8", "192.0.2.7", "::1"]
[[keys]]
name = "billing"
sha256 = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"
roles = ["enqueue", "check"]
buckets = ["hooks", "second"]
tier = "pro"
[[keys]]
name = "ops"
sha256 = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
roles = ["admin"]
buckets = ["*"]
tier = "pro.plus"
[[limits]]
name = "a"
per = ["caller", "flow"]
limit = "100/15m"
mode = "shadow"
on_store_failure = "local"
on_missing = "share"
sync_interval = "50ms"
[limits.tiers]
pro = "1000/m"
"pro.plus" = "5/s"
[[limits]]
name = "b.c"
limit = "5/s"
burst = 9
[[pools]]
name = "vendor"
rate = "60/s"
burst = 4
quotas = ["9000/h"]
max_in_flight = 300
[[pools]]
name = "plain"
rate = "9/s"
[[buckets]]
name = "hooks"
rate = "50/s"
pool = "vendor"
weight = 3
max_payload = "1MiB"
limits = ["a"]
dedupe_window = "0s"
[buckets.retry]
max_attempts = 3
[buckets.webhook]
url = "https://example.com/hook"
job_url = false
allow_networks = ["10.0.0.0/8"]
format = "cloudevents"
cloudevents = { source = "/orders", type = "order" }
[[buckets]]
name = "second"
rate = "7/m"
quotas = ["2000/d", "100/15m"]
priority_aging = "0s"
[buckets.retry]
schedule = ["5s", "20h"]
statuses = ["429", "5xx"]
max_age = "10d"
keep_attempts = 0
[buckets.flow]
key = "header:x-tenant"
rate = "2/s"
quotas = ["50/h"]
[buckets.group]
key = "caller"
rate = "1000/m"
burst = 3
capacity = 500
max_in_flight = 6
quotas = ["1000/m"]
[buckets.webhook]
url = "https://example.com/"
`

func TestLoad(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, full)

	a := admission.Limit{
		Name: "a", Algorithm: admission.TokenBucket, Per: []string{"caller", "flow"},
		Limit: admission.Rate{Count: 100, Per: 15 * time.Minute, Unit: "requests"}, Burst: 100, Precision: 1, MaxKeys: admission.DefaultMaxKeys,
		Mode: admission.Shadow, OnStoreFailure: admission.Local, OnMissing: admission.Share, SyncInterval: 50 * time.Millisecond,
		Tiers: map[string]admission.Rate{
			"pro":      {Count: 1000, Per: time.Minute, Unit: "requests"},
			"pro.plus": {Count: 5, Per: time.Second, Unit: "requests"},
		},
	}
	if !reflect.DeepEqual(c.Limits[0], a) {
		t.Errorf("limit is %+v, want %+v", c.Limits[0], a)
	}
	sum := [32]byte{}
	for i := range sum {
		sum[i] = byte(i)
	}
	billing := apikey.Key{
		Name: "billing", SHA256: [][32]byte{sum}, Tier: "pro", Buckets: []string{"hooks", "second"},
		Roles: []apikey.Role{apikey.RoleEnqueue, apikey.RoleCheck},
	}
	if len(c.Keys) != 2 || !reflect.DeepEqual(c.Keys[0], billing) {
		t.Errorf("keys are %+v, want first %+v", c.Keys, billing)
	}
	proxies := Networks{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("::1/128")}
	if !slices.Equal(c.Producer.TrustedProxies, proxies) {
		t.Errorf("trusted proxies are %s, want %s", c.Producer.TrustedProxies, proxies)
	}
	if c.Limits[1].Name != "b.c" || c.Limits[1].Burst != 9 {
		t.Errorf("limit is %+v", c.Limits[1])
	}

	hooks := shaper.DefaultBucket()
	hooks.Name, hooks.Revision = "hooks", 7
	hooks.Rate = admission.Rate{Count: 50, Per: time.Second, Unit: "requests"}
	hooks.MaxPayload, hooks.DedupeWindow, hooks.Retry.MaxAttempts = 1<<20, 0, 3
	hooks.Limits = []admission.Limit{a}
	hooks.MaxInFlight, hooks.DeliveryTimeout = 0, 15*time.Second
	hooks.Weight = 3
	hooks.Pool = &shaper.Pool{
		Name: "vendor", Rate: admission.Rate{Count: 60, Per: time.Second, Unit: "requests"}, Burst: 4,
		Quotas: []admission.Rate{{Count: 9000, Per: time.Hour, Unit: "requests"}}, MaxInFlight: 300, BudgetBurst: 20, Revision: 7,
	}
	want := Bucket{Bucket: hooks, LimitNames: []string{"a"}, PoolName: "vendor", Worker: "webhook", Statuses: []string{"any"}, Webhook: WebhookSettings{
		URL: "https://example.com/hook", Timeout: 15 * time.Second,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Format:        "cloudevents", ConnectionMaxAge: 5 * time.Minute, CloudEvents: CloudEventsSettings{Source: "/orders", Type: "order"},
	}}
	if !reflect.DeepEqual(c.Buckets[0], want) {
		t.Errorf("bucket is\n%+v, want\n%+v", c.Buckets[0], want)
	}

	second := shaper.DefaultBucket()
	second.Name, second.Revision = "second", 7
	second.Rate = admission.Rate{Count: 7, Per: time.Minute, Unit: "requests"}
	second.PriorityAging = 0
	second.MaxInFlight, second.DeliveryTimeout = 0, 15*time.Second
	second.Retry = second.Retry.WithSchedule(5*time.Second, 20*time.Hour)
	second.Retry.MaxAge, second.Retry.KeepAttempts = 240*time.Hour, 0
	second.Quotas = []admission.Rate{{Count: 2000, Per: 24 * time.Hour, Unit: "requests"}, {Count: 100, Per: 15 * time.Minute, Unit: "requests"}}
	flow := shaper.DefaultFlowSettings()
	flow.Key, flow.DefaultURL = "header:x-tenant", "https://example.com/"
	flow.Rate = admission.Rate{Count: 2, Per: time.Second, Unit: "requests"}
	flow.Quotas = []admission.Rate{{Count: 50, Per: time.Hour, Unit: "requests"}}
	thousand := admission.Rate{Count: 1000, Per: time.Minute, Unit: "requests"}
	second.Flow, second.Group = &flow, &shaper.GroupSettings{
		Key: "caller", DefaultURL: "https://example.com/", Rate: thousand, Burst: 3, Capacity: 500, MaxInFlight: 6,
		Quotas: []admission.Rate{thousand},
	}
	want = Bucket{Bucket: second, Worker: "webhook", Statuses: []string{"429", "5xx"}, Webhook: WebhookSettings{
		URL: "https://example.com/", JobURL: true, Timeout: 15 * time.Second, Format: "standard", ConnectionMaxAge: 5 * time.Minute, CloudEvents: CloudEventsSettings{Type: "tundish.job"},
	}}
	if !reflect.DeepEqual(c.Buckets[1], want) {
		t.Errorf("bucket is\n%+v, want\n%+v", c.Buckets[1], want)
	}
}

// Without max_attempts, a schedule makes one attempt more than it has waits, however the table is written.
func TestAttemptsOfASchedule(t *testing.T) {
	t.Parallel()
	const bucket = "[[buckets]]\nname = \"first\"\nrate = \"1/s\"\nretry.max_attempts = 9\n[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n"
	for retry, want := range map[string]string{
		`retry.schedule = []`:                                    "16, default",
		`retry.schedule = ["5s"]`:                                "2, default",
		`retry = { schedule = ["5s", "1d", "7s"] }`:              "4, default",
		`retry = { max_attempts = 16, schedule = ["5s"] }`:       "16, config.toml:8",
		"[buckets.retry]\nmax_attempts = 3\nschedule = [\"5s\"]": "3, config.toml:9",
	} {
		c := mustLoad(t, bucket+retry)
		s := settingAt(c, `buckets[1] "b".retry.max_attempts`)
		if got := s.Value + ", " + s.Source; got != want || fmt.Sprint(c.Buckets[1].Retry.MaxAttempts) != s.Value {
			t.Errorf("%s: got %s and %d, want %s", retry, got, c.Buckets[1].Retry.MaxAttempts, want)
		}
	}
}

func TestFaultsAsErrors(t *testing.T) {
	t.Parallel()
	_, err := load("[log]\nlevel = 1\n[redis]\ntimeout = 5\n")
	faults, ok := errors.AsType[Faults](err)
	if !ok || len(faults) != 2 {
		t.Fatalf("got %v, want two faults", err)
	}
	want := Fault{
		File: "config.toml", Line: 4, Key: "redis.timeout", Value: "5",
		Reason: `want a duration with a unit (ms, s, m, h, d), such as "30s" or "3d"`,
	}
	must.Equal(t, faults[1], want, "got")
	if fault, ok := errors.AsType[Fault](err); !ok || fault.Key != "log.level" {
		t.Errorf("got %+v, want the first fault", fault)
	}
}

func TestClientKey(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ flag, env, want, err string }{
		{},
		{flag: "tdk_flag", env: "TUNDISH_KEY=tdk_env", want: "tdk_flag"},
		{env: "TUNDISH_KEY=tdk_env TUNDISH_KEY_FILE=/secret", want: "tdk_env"},
		{env: "TUNDISH_KEY_FILE=/secret", want: "hunter2"},
		{flag: "file:/secret", want: "hunter2"},
		{flag: "env:OTHER", env: "OTHER=tdk_other", want: "tdk_other"},
		{flag: "cred:key", env: "CREDENTIALS_DIRECTORY=/run/c", want: "of a unit"},
		{flag: "cred:../secret", env: "CREDENTIALS_DIRECTORY=/run/c", err: `--key: the credential "../secret" is no file name`},
		{flag: "cred:key", err: "--key: CREDENTIALS_DIRECTORY is not set: systemd sets it for a unit with LoadCredential="},
		{flag: "env:OTHER", err: `--key: the variable "OTHER" is not set`},
		{env: "TUNDISH_KEY=file:/no", err: "env TUNDISH_KEY: cannot be read: open /no: file does not exist"},
		{env: "TUNDISH_KEY_FILE=/no", err: "env TUNDISH_KEY_FILE: cannot be read: open /no: file does not exist"},
	} {
		got, err := ClientKey(Options{Env: strings.Fields(try.env), ReadFile: files(map[string]string{"/secret": "hunter2\n", "/run/c/key": "of a unit"})}, try.flag)
		if got.Reveal() != try.want || (err == nil) != (try.err == "") || err != nil && err.Error() != try.err {
			t.Errorf("%+v: got %q, %v", try, got.Reveal(), err)
		}
	}
}

// TestWriteKey makes a table that reads back as the key.
func TestWriteKey(t *testing.T) {
	t.Parallel()
	key := apikey.Key{
		Name: "k", SHA256: [][32]byte{{1, 31: 255}}, Buckets: []string{"*"},
		Roles: []apikey.Role{apikey.RoleEnqueue, apikey.RoleCheck},
	}
	if err := CheckKey(key); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	must.OK(t, WriteKey(&text, key))
	if got := mustLoad(t, text.String()).Keys; !reflect.DeepEqual(got, []apikey.Key{key}) {
		t.Errorf("got %+v, want %+v, from\n%s", got, key, text.String())
	}
	key.Tier = "Pro"
	if err := CheckKey(key); err == nil || !strings.Contains(err.Error(), `tier: "Pro": want lower-case`) {
		t.Error(err)
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ word, want string }{
		{"rat", `; did you mean "rate"?`},
		{"brust", `; did you mean "burst"?`},
		{"capcity", `; did you mean "capacity"?`},
		{"zzz", ""},
	} {
		must.Equal(t, DidYouMean(try.word, []string{"rate", "burst", "capacity"}), try.want, "%s: got", try.word)
	}
}
