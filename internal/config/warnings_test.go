package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
)

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
		`buckets[0] "a": burst (11) is above capacity (10): the bucket never holds enough jobs for such a burst`,
		`buckets[1] "b": flow.rate (100/s) is above rate (17/s): no flow ever reaches it in the bucket`,
		`buckets[1] "b": flow.max_in_flight (257) is above max_in_flight (255): one flow may hold all deliveries of the bucket`,
		`buckets[1] "b": flow.capacity (10001) is above capacity (10000): one flow may fill the bucket`,
		`buckets[1] "b": webhook.allow_networks has 127.0.0.0/8: jobs may call 127.0.0.0/8`,
		`limits[0] "l": buckets "a", "b" share it and count apart: each admits 5/m`,
	}
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := mustLoad(t, "").Warnings(); len(got) != 1 || !strings.Contains(got[0], "no [[buckets]]") {
		t.Errorf("got %q", got)
	}
}

func TestWarningsOfRetry(t *testing.T) {
	t.Parallel()
	const warning = `buckets[0] "b": retry.max_age (%s) ends a job before attempt %d of retry.max_attempts (%d): the waits before it take longer`
	for retry, want := range map[string]string{
		`max_attempts = 16`:                                   "",
		`max_attempts = 30`:                                   fmt.Sprintf(warning, "72h", 26, 30),
		`max_attempts = 1000, max_age = "0s"`:                 "",
		`max_attempts = 3, max_age = "1s"`:                    fmt.Sprintf(warning, "1s", 2, 3),
		`schedule = ["5s", "1d", "2d"]`:                       fmt.Sprintf(warning, "72h", 4, 4),
		`schedule = ["5s", "1d", "2d"], max_age = "4d"`:       "",
		`schedule = ["1d"], max_attempts = 4`:                 "",
		`schedule = ["1d"], max_attempts = 5, max_age = "3d"`: fmt.Sprintf(warning, "72h", 5, 5),
	} {
		got := strings.Join(mustLoad(t, "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\nretry = { "+retry+" }\n").Warnings(), "\n")
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", retry, got, want)
		}
	}
}

// A report of a window that comes when the bucket of its hook is closed waits until that opens, and the warning says for how long.
func TestWarningsOfHooks(t *testing.T) {
	t.Parallel()
	const own = `drain = { cron = "0 2 * * *", for = "4h" }`
	for name, test := range map[string]struct {
		events, bucket, reports string
		want                    string // the warning; "" none
		advised                 bool
	}{
		"its own bucket":   {events: "window.closed", bucket: "night", want: `"night": window.closed of bucket "night" comes while the bucket of the hook is closed by its own drain windows, and waits up to 20h: `},
		"closes as well":   {events: "window.closed", bucket: "reports", reports: own, want: `"reports": window.closed of bucket "night" comes while `},
		"opens later":      {events: "window.closed", bucket: "reports", reports: `drain = { cron = "0 9 * * 1-5", for = "10h" }`, want: "waits up to 51h: "},
		"by hand":          {events: "window.closed", bucket: "reports", reports: `drain = { manual = true }`, want: "waits until an operator drains it: "},
		"has no windows":   {events: "window.closed", bucket: "reports"},
		"is open then":     {events: "window.closed", bucket: "reports", reports: `drain = { cron = "0 5 * * *", for = "4h" }`, want: `of bucket "reports" comes while`},
		"another event":    {events: "breaker.open", bucket: "night", advised: true},
		"no windows at it": {events: "breaker.open", bucket: "reports"},
	} {
		c := mustLoad(t, fmt.Sprintf("[[buckets]]\nname = \"night\"\nrate = \"1/s\"\n%s\n[[buckets]]\nname = \"reports\"\nrate = \"1/s\"\n%s\n"+
			"[[hooks]]\nevents = [%q]\nbucket = %q\nurl = \"http://example.com/\"\n", own, test.reports, test.events, test.bucket))
		of := func(list []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(list), func(text string) bool { return !strings.HasPrefix(text, "hooks[0]") }), "\n")
		}
		if got := of(c.Warnings()); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: it warns %q, want %q", name, got, test.want)
		}
		if got := of(c.Advice()); (got != "") != test.advised {
			t.Errorf("%s: it advises %q", name, got)
		}
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
		text := "[[buckets]]\nname = \"a\"\nrate = \"17/s\"\nmax_in_flight = 256\nflow = { key = \"host\", " + test.flow + " }\ngroup = { key = \"caller\", " + test.group + " }\n"
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
	open := `limits[0] "open": on_store_failure = "open" is for the check endpoint only: while Redis is unavailable, buckets "a" answer 503 to every job, because a job cannot be stored`
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
			[]string{"producer.trusted_proxies has ::/0, the whole internet: any caller can then give itself any address"},
		},
		"every user": {
			limits + key("k", `"check"`) + "[console]\ntrusted_proxies = [\"0.0.0.0/0\"]\nuser_header = \"X-User\"\nuser_key = \"k\"\n",
			[]string{"console.trusted_proxies has 0.0.0.0/0, the whole internet: any visitor can then give itself any address and the name of any user"},
		},
	} {
		if got := mustLoad(t, test.text).Warnings(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// Where senders name the flow, keys that are not bound may use the flows of each other.
func TestWarningsOfUnboundKeys(t *testing.T) {
	t.Parallel()
	key := func(name, rest string) string {
		return fmt.Sprintf("[[keys]]\nname = %q\nsha256 = \"%064x\"\nroles = [\"enqueue\"]\nbuckets = [\"*\"]\n%s\n", name, name, rest)
	}
	const flows, groups = `flows = ["x"]`, `groups = ["x"]`
	warning := func(what, by, keys string) string {
		return fmt.Sprintf(`buckets[0] "b": %s.key is %q, and keys %s are bound to no %[1]ss: each may use the secrets and headers of any flow for its jobs; give each key %[1]ss = ["..."]`, what, by, keys)
	}
	for name, test := range map[string]struct{ flow, group, keys, want string }{
		"none is bound":       {"job", "", key("k", "") + key("l", ""), warning("flow", "job", `"k", "l"`)},
		"one is not":          {"job", "", key("k", flows) + key("l", ""), warning("flow", "job", `"l"`)},
		"a header":            {"header:x-tenant", "", key("k", flows) + key("l", groups), warning("flow", "header:x-tenant", `"l"`)},
		"all are bound":       {"job", "", key("k", flows) + key("l", flows), ""},
		"one sender":          {"job", "", key("k", ""), ""},
		"another bucket's":    {"job", "", key("k", "") + strings.Replace(key("l", ""), `"*"`, `"other"`, 1), ""},
		"who only reads":      {"job", "", key("k", "") + strings.Replace(key("l", ""), `"enqueue"`, `"read"`, 1), ""},
		"by host":             {"host", "", key("k", "") + key("l", ""), ""},
		"by caller":           {"caller", "", key("k", "") + key("l", ""), ""},
		"in groups of theirs": {"job", "caller", key("k", "") + key("l", ""), ""},
		"in groups they name": {"job", "job", key("k", flows) + key("l", groups), warning("group", "job", `"k"`)},
		"bound to groups":     {"job", "job", key("k", groups) + key("l", groups), ""},
		"in groups by host":   {"job", "host", key("k", groups) + key("l", flows), warning("flow", "job", `"k"`)},
	} {
		text := "[redis]\nurl = \"redis://db\"\n" + test.keys + "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\nflow.key = \"" + test.flow + "\"\n"
		if test.group != "" {
			text += "group.key = \"" + test.group + "\"\n"
		}
		got := strings.Join(mustLoad(t, text+"[[buckets]]\nname = \"other\"\nrate = \"1/s\"\n").Warnings(), "\n")
		if got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

// Without keys a proxy on this machine is a program of this machine.
func TestWarningsOfProxiesWithoutKeys(t *testing.T) {
	t.Parallel()
	const bucket = "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n"
	const key = "[[keys]]\nname = \"k\"\nsha256 = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\nroles = [\"read\"]\n"
	const proxy, redis = "[producer]\ntrusted_proxies = [\"%s\"]\n", "[redis]\nurl = \"redis://db\"\n"
	const patch = "producer.trusted_proxies has %s, and there are no [[keys]]: what the proxy forwards may do everything, change limits (PATCH) too"
	for name, test := range map[string]struct {
		text string
		want []string // how the warnings begin
	}{
		"to try things out":          {bucket, nil},
		"for jobs that matter":       {redis + bucket, nil},
		"with keys":                  {redis + fmt.Sprintf(proxy, "127.0.0.1") + key + bucket, nil},
		"a proxy here":               {fmt.Sprintf(proxy, "127.0.0.1") + bucket, []string{fmt.Sprintf(patch, "127.0.0.1/32")}},
		"a proxy here, of IPv6":      {redis + fmt.Sprintf(proxy, "::1") + bucket, []string{fmt.Sprintf(patch, "::1/128")}},
		"a proxy on another machine": {fmt.Sprintf(proxy, "10.0.0.0/8") + bucket, nil},
	} {
		got := mustLoad(t, test.text).Warnings()
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

const (
	aloneAdvice = "it has no flows, and its jobs name their own URLs: a receiver that asks to wait delays only the job that it answers. " +
		"No adaptive rate and no circuit breaker protects that receiver, and a 410 disables nothing. "
	inFlightAdvice = "flow.max_in_flight is 0"
	capacityAdvice = "flow.capacity is 0"
)

// One flow's trouble must not take what the others need.
func TestAdviceOnFlowsWithoutBounds(t *testing.T) {
	t.Parallel()
	const bucket = "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\nmax_in_flight = 256\nflow.key = \"host\"\n"
	for more, want := range map[string][]string{
		"":                         {inFlightAdvice + ": one receiver that hangs may take all deliveries of the bucket (256); want a part of them, such as 25", capacityAdvice + ": the backlog of one flow may fill the bucket (10000 jobs); want a part of it, such as 1000"},
		"flow.max_in_flight = 5\n": {capacityAdvice},
		"flow.capacity = 5\n":      {inFlightAdvice},
		"flow.max_in_flight = 5\nflow.capacity = 5\n": nil,
	} {
		var got []string
		for _, w := range mustLoad(t, bucket+more).Advice() {
			if strings.Contains(w, inFlightAdvice) || strings.Contains(w, capacityAdvice) {
				got = append(got, w)
			}
		}
		if !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("%q: advised %q, want %q", more, got, want)
		}
	}
}

func TestAdviceOnLargePayloads(t *testing.T) {
	t.Parallel()
	for most, want := range map[string]bool{"1536KiB": false, "2MiB": true} {
		c := mustLoad(t, "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\nwebhook.url = \"https://example.com\"\nmax_payload = \""+most+"\"\n")
		if got := strings.Contains(strings.Join(c.Advice(), "\n"), `max_payload is "`+most+`": Redis runs nothing else`); got != want {
			t.Errorf("%s: advised %t: %q", most, got, c.Advice())
		}
	}
}

// A log of deliveries that results_max cuts short, at the fastest rate of the bucket.
func TestAdviceOnShortResults(t *testing.T) {
	t.Parallel()
	const kept = "result_retention = \"3d\"\n"
	for more, want := range map[string]string{
		"": "", kept + "results_max = 10000000\nrate = \"38/s\"\n": "", "rate = \"1/m\"\n" + kept: "", "rate = \"1/d\"\nresult_retention = \"8784h\"\n": "",
		"rate = \"200/s\"\n" + kept: "result_retention is 72h, and results_max (10000) is reached in 50s at its rate (200/s): the flow that has the most results then drops " +
			"its oldest ones; 51840000 results are more than results_max may be (10000000): want a shorter result_retention",
		"rate = \"10/s\"\n" + kept: "is reached in 16m40s at its rate (10/s): the flow that has the most results then drops its oldest ones; to keep all want results_max = 2592000, ",
		"rate = \"1/m\"\n" + kept + "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"10/s\"\n": "is reached in 16m40s at its calendar.rate (10/s)",
	} {
		text := "[[buckets]]\nname = \"b\"\nwebhook.url = \"https://example.com\"\n" + more
		if !strings.Contains(more, "rate") {
			text += "rate = \"200/s\"\n"
		}
		got := strings.Join(mustLoad(t, text).Advice(), "\n")
		if want == "" && strings.Contains(got, "results_max") || !strings.Contains(got, want) {
			t.Errorf("%q: advised %q, want %q", more, got, want)
		}
	}
}

// A caller that makes up flows or headers takes all keys of a limit, and with API keys its share.
func TestAdviceOnKeysThatCallersMake(t *testing.T) {
	t.Parallel()
	for per, want := range map[string]bool{`"caller", "ip"`: false, `"caller", "flow"`: true, `"header:X-Tenant"`: true} {
		c := mustLoad(t, "[[limits]]\nname = \"l\"\nlimit = \"5/s\"\nmax_keys = 77\nper = ["+per+"]\n")
		if got := strings.Contains(strings.Join(c.Advice(), "\n"), "takes all max_keys (77)"); got != want {
			t.Errorf("per %s: advised %t: %q", per, got, c.Advice())
		}
		c.Keys = []apikey.Key{{Name: "one", Roles: []apikey.Role{apikey.RoleEnqueue}}}
		advice := strings.Join(c.Advice(), "\n")
		if got := strings.Contains(advice, "takes half of max_keys (77) in a bucket"); got != want || strings.Contains(advice, "takes all max_keys") {
			t.Errorf("per %s with API keys: advised %t: %q", per, got, advice)
		}
	}
}

// Behind a route it is the producer that calls the API.
func TestAdviceOnRoutes(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]bool{"": false, "llm.serve_proxy = true\n": true} {
		c := mustLoad(t, "redis.url = \"redis://127.0.0.1:6379\"\n[[buckets]]\nname = \"b\"\nrate = \"1/s\"\nworker = \"llm\"\nllm.api = \"openai\"\nllm.base_url = \"https://example.com\"\n"+more)
		if got := strings.Contains(strings.Join(c.Advice(), "\n"), "`producer serve` calls the API by itself"); got != want {
			t.Errorf("%q: advised %t: %q", more, got, c.Advice())
		}
	}
}

func TestAdviceOnJobsThatWaitAlone(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]bool{"": true, "flow.key = \"host\"\n": false, "webhook.url = \"https://example.com\"\n": false} {
		c := mustLoad(t, "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n"+more)
		if got := strings.Contains(strings.Join(c.Advice(), "\n"), aloneAdvice); got != want {
			t.Errorf("%q: advised %t", more, got)
		}
	}
}

// What somebody writes first starts without a warning: the smallest files, and the one of the docs.
func TestSmallestFilesHaveNoWarnings(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```toml\n")
	example, _, found := strings.Cut(example, "```")
	const bucket = "[[buckets]]\nname = \"b\"\nrate = \"200/s\"\n"
	for name, text := range map[string]string{
		"the page of the configuration": example, "a bucket": bucket, "flows": bucket + "flow.key = \"host\"\n", "an API": bucket + "worker = \"http\"\nhttp.base_url = \"https://api.example.com\"\n",
		"with Redis": "[redis]\nurl = \"redis://db\"\n" + bucket + "flow.key = \"job\"\ngroup.key = \"host\"\n",
		"at night":   bucket + "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"600/s\"\n",
	} {
		if got := mustLoad(t, text).Warnings(); len(got) > 0 || !found {
			t.Errorf("%s: %q", name, got)
		}
	}
	const noKeys = "there are no [[keys]]: every program of this machine may do everything. Behind a reverse proxy on this machine that adds no forwarding header, every client may. Make keys before a proxy is put in front"
	if got := mustLoad(t, example).Advice(); !slices.Equal(got, []string{noKeys}) {
		t.Errorf("advised %q", got)
	}
	if got := mustLoad(t, bucket+"webhook.url = \"https://example.com\"\n").Advice(); len(got) > 0 {
		t.Errorf("the embedded store: advised %q", got)
	}
}

// The rates of a calendar count, where they are faster than that of the bucket.
func TestWarningsOfTime(t *testing.T) {
	t.Parallel()
	const bucket = "[dispatcher]\nconcurrency = %d\n[[buckets]]\nname = \"b\"\nrate = \"5/s\"\nmax_in_flight = %d\nwebhook.timeout = \"10s\"\n%s"
	const night, slow = "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"12000/m\"\n", "[[buckets.calendar]]\nfrom = \"22:00\"\nto = \"06:00\"\nrate = \"1/s\"\n"
	const warning = `buckets[0] "b": %s with a webhook.timeout of 10s needs %d deliveries in flight, and max_in_flight (%d) and dispatcher.concurrency (%d) allow %d: deliveries that take their whole timeout would hold the rate back`
	for name, test := range map[string]struct {
		concurrency, inFlight int
		more, want            string
	}{
		"enough":               {50, 50, "", ""},
		"too few workers":      {49, 50, "", fmt.Sprintf(warning, "5/s (rate)", 50, 50, 49, 49)},
		"too few in flight":    {0, 49, "", fmt.Sprintf(warning, "5/s (rate)", 50, 49, 10_000, 49)},
		"both automatic":       {0, 0, night, ""},
		"a slower calendar":    {50, 0, slow, ""},
		"a faster calendar":    {1999, 0, night, fmt.Sprintf(warning, "12000/m (calendar.rate)", 2000, 2000, 1999, 1999)},
		"enough at night, too": {2000, 2000, night, ""},
	} {
		if got := strings.Join(mustLoad(t, fmt.Sprintf(bucket, test.concurrency, test.inFlight, test.more)).Warnings(), "\n"); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, test.want)
		}
	}
	got := mustLoad(t, fmt.Sprintf(bucket, 0, 0, "flow.key = \"host\"\nflow.rate = \"100/s\"\n"+night)).Warnings()
	if len(got) > 0 {
		t.Errorf("a flow below the rate at night: %q", got)
	}
}
