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
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	c, err := Load(Options{ReadFile: files(nil)})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
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
[[buckets]]
name = "hooks"
rate = "50/s"
max_payload = "1MiB"
limits = ["a"]
dedupe_window = "0s"
[buckets.retry]
max_attempts = 3
[buckets.webhook]
url = "https://example.com/hook"
job_url = false
allow_networks = ["10.0.0.0/8"]
[[buckets]]
name = "second"
rate = "7/m"
quotas = ["2000/d", "100/15m"]
priority_aging = "0s"
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
		Limit: admission.Rate{Count: 100, Per: 15 * time.Minute, Unit: "requests"}, Burst: 100, Precision: 1,
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
	billing := httpapi.Key{
		Name: "billing", SHA256: sum, Tier: "pro", Buckets: []string{"hooks", "second"},
		Roles: []httpapi.Role{httpapi.RoleEnqueue, httpapi.RoleCheck},
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
	hooks.Name, hooks.Worker, hooks.Revision = "hooks", "webhook", 7
	hooks.Rate = admission.Rate{Count: 50, Per: time.Second, Unit: "requests"}
	hooks.MaxPayload, hooks.DedupeWindow, hooks.Retry.MaxAttempts = 1<<20, 0, 3
	hooks.Limits = []admission.Limit{a}
	want := Bucket{Bucket: hooks, Webhook: WebhookSettings{
		URL: "https://example.com/hook", Timeout: 15 * time.Second,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}}
	if !reflect.DeepEqual(c.Buckets[0], want) {
		t.Errorf("bucket is\n%+v, want\n%+v", c.Buckets[0], want)
	}

	second := shaper.DefaultBucket()
	second.Name, second.Worker, second.Revision = "second", "webhook", 7
	second.Rate = admission.Rate{Count: 7, Per: time.Minute, Unit: "requests"}
	second.PriorityAging = 0
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
	want = Bucket{Bucket: second, Webhook: WebhookSettings{URL: "https://example.com/", JobURL: true, Timeout: 15 * time.Second}}
	if !reflect.DeepEqual(c.Buckets[1], want) {
		t.Errorf("bucket is\n%+v, want\n%+v", c.Buckets[1], want)
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
		Reason: `want a duration with a unit (ms, s, m, h), such as "30s"`,
	}
	if faults[1] != want {
		t.Errorf("got %+v, want %+v", faults[1], want)
	}
	if fault, ok := errors.AsType[Fault](err); !ok || fault.Key != "log.level" {
		t.Errorf("got %+v, want the first fault", fault)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[redis]
url = "redis://db"
[producer]
listen = "127.0.0.1:8081"
[[limits]]
name = "l"
limit = "5/m"
[[buckets]]
name = "a"
rate = "50/s"
burst = 11
capacity = 10
limits = ["l"]
[[buckets]]
name = "b"
rate = "17/s"
limits = ["l"]
webhook.allow_networks = ["127.0.0.0/8", "10.0.0.0/8"]
flow = { key = "host", rate = "100/s", max_in_flight = 257, capacity = 10001 }
`)
	want := []string{
		`producer.listen and dispatcher.listen are both "127.0.0.1:8081": on one machine only one of them can start`,
		`buckets[0] "a": 50/s with a webhook.timeout of 15s needs 750 deliveries in flight, and max_in_flight (256) and dispatcher.concurrency (256) allow 256: deliveries that take their whole timeout would hold the rate back`,
		`buckets[0] "a": burst (11) is above capacity (10): so many jobs are never there`,
		`buckets[1] "b": flow.rate (100/s) is above rate (17/s): no flow ever reaches it in the bucket`,
		`buckets[1] "b": flow.max_in_flight (257) is above max_in_flight (256): one flow may hold all deliveries of the bucket`,
		`buckets[1] "b": flow.capacity (10001) is above capacity (10000): one flow may fill the bucket`,
		`buckets[1] "b": webhook.allow_networks has 127.0.0.0/8: jobs may call 127.0.0.0/8`,
		`limits[0] "l": buckets "a", "b" share it and count apart: each lets 5/m in`,
	}
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := mustLoad(t, "").Warnings(); len(got) != 1 || !strings.Contains(got[0], "no [[buckets]]") {
		t.Errorf("got %q", got)
	}
}

// Of three levels, each is held against the nearest above it that has such a bound.
func TestWarningsOfGroups(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flow, group string
		want        []string
	}{
		"rates in other times": {`rate = "5/s"`, `rate = "100/15m"`, []string{"flow.rate (5/s) is above group.rate (100/15m0s): no flow ever reaches it in its group"}},
		"nothing to say":       {`rate = "5/s", max_in_flight = 4, capacity = 10`, `rate = "10/s", max_in_flight = 256, capacity = 10000`, nil},
		"the flow above its group": {
			`rate = "11/s", max_in_flight = 5, capacity = 101`, `rate = "10/s", max_in_flight = 4, capacity = 100`,
			[]string{
				"flow.rate (11/s) is above group.rate (10/s): no flow ever reaches it in its group",
				"flow.max_in_flight (5) is above group.max_in_flight (4): one flow may hold all deliveries of its group",
				"flow.capacity (101) is above group.capacity (100): one flow may fill its group",
			},
		},
		"the group above the bucket": {
			`rate = "12/s"`, `rate = "1100/m", max_in_flight = 257, capacity = 10001`,
			[]string{
				"group.rate (1100/m) is above rate (17/s): no group ever reaches it in the bucket",
				"group.max_in_flight (257) is above max_in_flight (256): one group may hold all deliveries of the bucket",
				"group.capacity (10001) is above capacity (10000): one group may fill the bucket",
			},
		},
		"a group without bounds": {
			`rate = "18/s", max_in_flight = 257`, `burst = 1`,
			[]string{
				"flow.rate (18/s) is above rate (17/s): no flow ever reaches it in the bucket",
				"flow.max_in_flight (257) is above max_in_flight (256): one flow may hold all deliveries of the bucket",
			},
		},
	} {
		text := "[[buckets]]\nname = \"a\"\nrate = \"17/s\"\nflow = { key = \"host\", " + test.flow + " }\ngroup = { key = \"caller\", " + test.group + " }\n"
		got := mustLoad(t, text).Warnings()
		for i, want := range test.want {
			test.want[i] = `buckets[0] "a": ` + want
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
	for key, want := range map[string]string{
		"job":  "",
		"host": `buckets[0] "a": group.key and flow.key are both "host": each group has one flow only`,
	} {
		got := mustLoad(t, fmt.Sprintf("[[buckets]]\nname = \"a\"\nrate = \"17/s\"\nflow.key = %q\ngroup.key = %q\n", key, key)).Warnings()
		if strings.Join(got, "\n") != want {
			t.Errorf("both keys %s: got %q, want %q", key, got, want)
		}
	}
}

func TestWarningsOfAdmission(t *testing.T) {
	t.Parallel()
	const limits = `
[[limits]]
name = "open"
limit = "5/m"
on_store_failure = "open"
[[limits]]
name = "sync"
limit = "5/m"
sync_interval = "50ms"
[[limits]]
name = "idle"
limit = "5/m"
[[buckets]]
name = "a"
rate = "5/s"
limits = ["open", "sync"]
`
	key := func(name, roles string) string {
		return fmt.Sprintf("[[keys]]\nname = %q\nsha256 = \"%064x\"\nroles = [%s]\nbuckets = [\"*\"]\n", name, name, roles)
	}
	open := `limits[0] "open": on_store_failure = "open" is for the check endpoint only: when Redis is away, buckets "a" answer 503 to every job, as a job has to be kept`
	sync := `limits[1] "sync": sync_interval is for the check endpoint only: buckets "a" ask Redis each time`
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"no keys":            {limits, []string{open, sync}},
		"a key may check":    {limits + key("k", `"check"`), nil},
		"no key may check":   {limits + key("k", `"enqueue"`), []string{open, sync, `limits[2] "idle": no bucket names it, and no key has the role check: nothing asks it`}},
		"more than an admin": {limits + key("k", `"admin", "enqueue"`), []string{`keys[0] "k": role admin may do everything: the other roles add nothing; a key that only enqueues or looks should not have it`}},
		"every proxy": {
			limits + key("k", `"check"`) + "[producer]\ntrusted_proxies = [\"::/0\"]\n",
			[]string{"producer.trusted_proxies has ::/0, everybody: any caller can then give itself any address"},
		},
	} {
		if got := mustLoad(t, test.text).Warnings(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
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
		{flag: "env:OTHER", err: `--key: the variable "OTHER" is not set`},
		{env: "TUNDISH_KEY=file:/no", err: "env TUNDISH_KEY: cannot be read: open /no: file does not exist"},
		{env: "TUNDISH_KEY_FILE=/no", err: "env TUNDISH_KEY_FILE: cannot be read: open /no: file does not exist"},
	} {
		got, err := ClientKey(Options{Env: strings.Fields(try.env), ReadFile: files(map[string]string{"/secret": "hunter2\n"})}, try.flag)
		if got.Reveal() != try.want || (err == nil) != (try.err == "") || err != nil && err.Error() != try.err {
			t.Errorf("%+v: got %q, %v", try, got.Reveal(), err)
		}
	}
}

// TestWriteKey makes a table that reads back as the key.
func TestWriteKey(t *testing.T) {
	t.Parallel()
	key := httpapi.Key{
		Name: "k", SHA256: [32]byte{1, 31: 255}, Buckets: []string{"*"},
		Roles: []httpapi.Role{httpapi.RoleEnqueue, httpapi.RoleCheck},
	}
	if err := CheckKey(key); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	if err := WriteKey(&text, key); err != nil {
		t.Fatal(err)
	}
	if got := mustLoad(t, text.String()).Keys; !reflect.DeepEqual(got, []httpapi.Key{key}) {
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
		if got := didYouMean(try.word, []string{"rate", "burst", "capacity"}); got != try.want {
			t.Errorf("%s: got %q, want %q", try.word, got, try.want)
		}
	}
}
