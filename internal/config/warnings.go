package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
)

// guarded are networks that a job should not reach: this machine, and the metadata service of clouds.
var guarded = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"),
}

// loopback are the addresses from which a proxy calls a server without keys.
var loopback = guarded[:2]

// Warnings lists settings that contradict each other, or do less or more than they seem to.
func (c *Config) Warnings() []string {
	warnings, _ := c.notices()
	return warnings
}

// Advice lists valid settings that could be better: keys that few know of, and defaults that do not suit everybody.
func (c *Config) Advice() []string {
	_, advice := c.notices()
	return advice
}

func (c *Config) notices() (warnings, advice []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	advise := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if len(c.Buckets) == 0 {
		warn("there are no [[buckets]]: nothing can be enqueued")
	}
	if c.Producer.Listen == c.Dispatcher.Listen && !strings.HasSuffix(c.Producer.Listen, ":0") {
		warn("producer.listen and dispatcher.listen are both %q: on one machine only one of them can start", c.Producer.Listen)
	}
	users := map[string][]string{}
	for i, b := range c.Buckets {
		p := at("buckets").element(i, b.Name)
		for _, limit := range b.Limits {
			users[limit.Name] = append(users[limit.Name], strconv.Quote(b.Name))
		}
		c.warnOfTime(warn, p, b)
		if b.Burst > b.Capacity {
			warn("%s: burst (%d) is above capacity (%d): the bucket never holds enough jobs for such a burst", p.shown, b.Burst, b.Capacity)
		}
		warnOfRetry(warn, p, b.Retry)
		warnOfCron(warn, p, b)
		warnOfFlows(warn, p, b)
		adviseOnFlows(advise, p, b)
		adviseOnResults(advise, p, b)
		if b.MaxPayload > swiftPayload {
			advise("%s: max_payload is %s: Redis runs nothing else for about 3 ms a MiB while such a job is enqueued; keep what is larger than %s "+
				"elsewhere, and have the job name it", p.shown, literal(size(b.MaxPayload)), literal(size(swiftPayload)))
		}
		if b.Flow == nil && b.Worker == workerWebhook && b.Webhook.URL == "" {
			advise("%s: it has no flows, and its jobs name their own URLs: a receiver that asks to wait delays only the job that it answers. "+
				"No adaptive rate and no circuit breaker protects that receiver, and a 410 disables nothing. "+
				`[buckets.flow] with key = "host" gives each receiver a hold, a rate and a breaker, and breaker.on_gone = "disable" lets a 410 disable it`, p.shown)
		}
		c.warnOfUnbound(warn, p, b)
		if b.LLM != nil && b.LLM.ServeProxy && !c.Redis.URL.Embedded() {
			advise("%s: with llm.serve_proxy, `producer serve` calls the API by itself: it needs the secrets and files of [buckets.llm], and a way out to "+
				"the API, as dispatchers do", p.shown)
		}
		if !c.Redis.URL.Embedded() {
			key, networks := b.allowNetworks()
			for _, network := range networks {
				for _, inner := range guarded {
					if network.Overlaps(inner) {
						warn("%s: %s has %s: jobs may call %s", p.shown, key, network, inner)
					}
				}
			}
		}
	}
	c.warnOfPools(warn)
	c.warnOfHooks(warn, advise)
	for i, limit := range c.Limits {
		p := at("limits").element(i, limit.Name)
		c.warnOfLimit(warn, p, limit, users[limit.Name])
		c.adviseOnLimit(advise, p, limit)
	}
	c.warnOfAccess(warn)
	if len(c.Keys) == 0 && !c.Redis.URL.Embedded() {
		advise("there are no [[keys]]: every program of this machine may do everything. Behind a reverse proxy on this machine that adds no forwarding header, every client may. Make keys before a proxy is put in front")
	}
	return warnings, advice
}

// warnOfTime warns of a rate that deliveries cannot reach if each takes as long as it may.
func (c *Config) warnOfTime(warn func(string, ...any), p place, b Bucket) {
	rate, of := fastest(b)
	key, timeout := b.timeout()
	need, most, workers := int64(math.Ceil(rate.PerSecond()*timeout.Seconds())), b.EffectiveMaxInFlight(), int64(c.Dispatcher.Workers())
	if have := min(most, workers); have < need {
		warn("%s: %s (%s) with a %s of %s needs %d deliveries in flight, and max_in_flight (%d) and "+
			"dispatcher.concurrency (%d) allow %d: deliveries that take their whole timeout would hold the rate back",
			p.shown, rate, of, key, brief(timeout), need, most, workers, have)
	}
}

// warnOfRetry warns of attempts that max_age forbids, because the waits before them take longer on average.
func warnOfRetry(warn func(string, ...any), p place, r shaper.RetryPolicy) {
	waited := time.Duration(0)
	for attempt := 1; attempt < r.MaxAttempts && r.MaxAge > 0; attempt++ {
		if waited += r.Delay(attempt, 0, 0.5); waited > r.MaxAge {
			warn("%s: retry.max_age (%s) ends a job before attempt %d of retry.max_attempts (%d): the waits before it take longer",
				p.shown, brief(r.MaxAge), attempt+1, r.MaxAttempts)
			return
		}
	}
}

// level is a bound of a bucket, or of each of its groups or flows.
type level struct {
	of    string  // the object with the bound
	key   string  // with the table
	value float64 // 0 if there is none
	text  string
}

// boundsOf are a rate, then bounds on jobs in flight and on unfinished jobs.
func boundsOf(of, table string, rate admission.Rate, inFlight, capacity int64) []level {
	return []level{
		{of, table + "rate", rate.PerSecond(), rate.String()},
		{of, table + "max_in_flight", float64(inFlight), fmt.Sprint(inFlight)},
		{of, table + "capacity", float64(capacity), fmt.Sprint(capacity)},
	}
}

// aboveMeans explains, in the order of boundsOf, a bound that is above the one of the bucket or the group.
var aboveMeans = [...]string{"no %s ever reaches it in %s", "one %s may hold all deliveries of %s", "one %s may fill %s"}

// warnOfFlows warns of bounds of a group or a flow that never take effect, because those above them are lower.
func warnOfFlows(warn func(string, ...any), p place, b Bucket) {
	f, g := b.Flow, b.Group
	if f == nil {
		return
	}
	rate, key := fastest(b)
	above := boundsOf("the bucket", "", rate, b.EffectiveMaxInFlight(), b.Capacity)
	above[0].key = key
	check := func(what string, own []level) {
		for i, bound := range own {
			if bound.value > above[i].value && above[i].value > 0 {
				warn("%s: %s (%s) is above %s (%s): "+aboveMeans[i], p.shown, bound.key, bound.text, above[i].key, above[i].text, what, above[i].of)
			}
			if bound.value > 0 {
				above[i] = bound
			}
		}
	}
	if g != nil {
		check("group", boundsOf("its group", "group.", g.Rate, g.MaxInFlight, g.Capacity))
		if g.Key == f.Key && g.Key != shaper.FlowKeyJob {
			warn("%s: group.key and flow.key are both %q: each group has one flow only", p.shown, g.Key)
		}
	}
	check("flow", boundsOf("its flow", "flow.", f.Rate, f.MaxInFlight, f.Capacity))
}

// adviseOnFlows names bounds that keep one flow from taking all of a bucket.
func adviseOnFlows(advise func(string, ...any), p place, b Bucket) {
	f := b.Flow
	if f == nil {
		return
	}
	if most := b.EffectiveMaxInFlight(); f.MaxInFlight == 0 {
		advise("%s: flow.max_in_flight is 0: one receiver that hangs may take all deliveries of the bucket (%d); want a part of them, such as %d",
			p.shown, most, max(most/flowShare, 1))
	}
	if f.Capacity == 0 {
		advise("%s: flow.capacity is 0: the backlog of one flow may fill the bucket (%d jobs); want a part of it, such as %d",
			p.shown, b.Capacity, max(b.Capacity/flowShare, 1))
	}
}

// swiftPayload is the size up to which no script takes 5 ms (docs/benchmarks.md).
const swiftPayload = 3 << 19

// flowShare is how many failing flows a bucket tolerates with the bounds that an advice names.
const flowShare = 10

// senderNames reports whether the sender of a job chooses the key of its flow or group.
func senderNames(key string) bool {
	return key == shaper.FlowKeyJob || admission.HeaderOf(key) != ""
}

// warnOfUnbound warns of keys that may enqueue into the flows of each other. The sender then
// chooses the flow, and with it the secrets and headers of a job.
func (c *Config) warnOfUnbound(warn func(string, ...any), p place, b Bucket) {
	if b.Flow == nil {
		return
	}
	what, key := "flow", b.Flow.Key
	names := func(k apikey.Key) []string { return k.Flows }
	if b.Group != nil {
		switch {
		case b.Group.Key == shaper.FlowKeyCaller:
			return // its flows are its own
		case senderNames(b.Group.Key):
			what, key = "group", b.Group.Key
			names = func(k apikey.Key) []string { return k.Groups }
		}
	}
	if !senderNames(key) {
		return
	}
	senders, unbound := 0, []string{}
	for _, k := range c.Keys {
		if !slices.Contains(k.Roles, apikey.RoleEnqueue) || !slices.Contains(k.Buckets, b.Name) && !slices.Contains(k.Buckets, apikey.AllBuckets) {
			continue
		}
		if senders++; len(names(k)) == 0 {
			unbound = append(unbound, strconv.Quote(k.Name))
		}
	}
	if senders > 1 && len(unbound) > 0 {
		warn("%s: %s.key is %q, and keys %s are bound to no %ss: each may use the secrets and headers of any flow for its jobs; "+
			"give each key %ss = [\"...\"]", p.shown, what, key, strings.Join(unbound, ", "), what, what)
	}
}

// warnOfLimit warns of settings of a limit that have no effect where it is used. users are the buckets that name it.
func (c *Config) warnOfLimit(warn func(string, ...any), p place, limit admission.Limit, users []string) {
	names := strings.Join(users, ", ")
	checked := slices.ContainsFunc(c.Keys, func(k apikey.Key) bool {
		return slices.Contains(k.Roles, apikey.RoleCheck) || slices.Contains(k.Roles, apikey.RoleAdmin)
	})
	if len(users) > 1 {
		warn("%s: buckets %s share it and count apart: each admits %s", p.shown, names, limit.Limit)
	}
	switch {
	case checked:
	case len(users) == 0:
		if len(c.Keys) > 0 {
			warn("%s: no bucket names it, and no key has the role %s: nothing asks it", p.shown, apikey.RoleCheck)
		}
	case limit.OnStoreFailure != admission.Closed:
		warn("%s: on_store_failure = %q is for the check endpoint only: while Redis is unavailable, buckets %s answer 503 to every job, because a job cannot be stored",
			p.shown, limit.OnStoreFailure, names)
	case limit.SyncInterval != 0:
		warn("%s: sync_interval is for the check endpoint only: buckets %s ask Redis each time", p.shown, names)
	}
}

// adviseOnLimit names a limit whose keys its callers make: one of them may use up its share of them, and all where there are no API keys.
func (c *Config) adviseOnLimit(advise func(string, ...any), p place, limit admission.Limit) {
	made := slices.IndexFunc(limit.Per, func(per string) bool { return per == admission.PerFlow || admission.HeaderOf(per) != "" })
	if made < 0 {
		return
	}
	takes := fmt.Sprintf("a caller that makes up values takes all max_keys (%d), and later callers share one key", limit.MaxKeys)
	if len(c.Keys) > 0 {
		takes = fmt.Sprintf("a caller of an API key that makes up values takes half of max_keys (%d) in a bucket, and its further values share one key; "+
			"at the check endpoint it takes all, and another one half of as many more", limit.MaxKeys)
	}
	advise("%s: callers choose what per has of %q: %s; tundish_admission_overflow_total and tundish_limit_overflow_total count it", p.shown, limit.Per[made], takes)
}

// warnOfAccess warns of keys and proxies that are trusted with more than is
// probably meant.
func (c *Config) warnOfAccess(warn func(string, ...any)) {
	for i, key := range c.Keys {
		if slices.Contains(key.Roles, apikey.RoleAdmin) && len(key.Roles) > 1 {
			warn("%s: role %s may do everything: the other roles add nothing; a key that only enqueues or looks should not have it",
				at("keys").element(i, key.Name).shown, apikey.RoleAdmin)
		}
	}
	for _, network := range c.Producer.TrustedProxies {
		if here := slices.ContainsFunc(loopback, network.Overlaps); here && len(c.Keys) == 0 {
			warn("producer.trusted_proxies has %s, and there are no [[keys]]: what the proxy forwards may do everything, "+
				"change limits (PATCH) too: make keys, or have it forward checks only", network)
		}
		if network.Bits() == 0 {
			warn("producer.trusted_proxies has %s, the whole internet: any caller can then give itself any address", network)
		}
	}
	for _, network := range c.Console.TrustedProxies {
		if network.Bits() == 0 {
			warn("console.trusted_proxies has %s, the whole internet: any visitor can then give itself any address%s", network,
				map[bool]string{true: " and the name of any user"}[c.Console.UserHeader != ""])
		}
	}
}

// adviseOnResults advises on a log of deliveries that is shorter than its retention: at the fastest rate of the bucket, results_max drops results
// before.
func adviseOnResults(advise func(string, ...any), p place, b Bucket) {
	rate, of := fastest(b)
	if b.Results.Retention == 0 || rate.IsZero() {
		return
	}
	held := time.Duration(math.Min(float64(b.Results.Max)/rate.PerSecond(), float64(shaper.MaxDelay/time.Second)) * float64(time.Second))
	if held >= b.Results.Retention {
		return
	}
	next := fmt.Sprintf("%d results are more than results_max may be (%d): want a shorter result_retention, or deliveries that are logged elsewhere", needed(b), int64(shaper.MaxResults))
	if n := needed(b); n <= shaper.MaxResults {
		next = fmt.Sprintf("to keep all want results_max = %d, and results_bytes for as many", n)
	}
	advise("%s: result_retention is %s, and results_max (%d) is reached in %s at its %s (%s): the flow that has the most results then drops its oldest ones; %s",
		p.shown, brief(b.Results.Retention), b.Results.Max, brief(held.Round(time.Second)), of, rate, next)
}

// needed returns how many results a bucket has after its retention, at its fastest rate.
func needed(b Bucket) int64 {
	rate, _ := fastest(b)
	return int64(math.Ceil(math.Min(rate.PerSecond()*b.Results.Retention.Seconds(), math.MaxInt32*1000)))
}

// warnOfHooks warns of reports of windows that have to wait, because the bucket of their hook is closed when they are sent. Other events may wait in a
// bucket with windows too, which is advice.
func (c *Config) warnOfHooks(warn, advise func(string, ...any)) {
	for i, hook := range c.Hooks {
		n := slices.IndexFunc(c.Buckets, func(b Bucket) bool { return b.Name == hook.Bucket })
		if n < 0 || c.Buckets[n].Drain == nil {
			continue
		}
		p, isLate := at("hooks").element(i, hook.Bucket), false
		for _, b := range c.Buckets {
			if b.Drain == nil || !slices.Contains(hook.Events, shaper.EventWindowClosed) {
				continue
			}
			if wait := waitOfReport(timetableOf(b), timetableOf(c.Buckets[n])); wait != "" {
				isLate = true
				warn("%s: window.closed of bucket %q comes while the bucket of the hook is closed by its own drain windows, and waits %s: name a bucket that is open then",
					p.shown, b.Name, wait)
			}
		}
		if !isLate {
			advise("%s: the bucket of the hook has drain windows: an event outside of them waits until it opens. A bucket without windows sends it at once", p.shown)
		}
	}
}

// timetableOf is the timetable of a bucket that is valid.
func timetableOf(b Bucket) *schedule.Timetable {
	t, _ := b.Plan().Timetable(b.Name, schedule.Rate{Count: b.Rate.Count, Per: b.Rate.Per})
	return t
}

// waitOfReport returns for how long the reports of windows of a bucket wait in another one, at most; "" if they do not.
func waitOfReport(of, in *schedule.Timetable) string {
	const (
		windows = 50               // the number of windows to check
		takes   = 30 * time.Second // until a report may be sent, at most
		ahead   = 32 * 24 * time.Hour
	)
	longest := time.Duration(0)
	at := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC) // so that the configuration alone decides
	for range windows {
		_, end := of.Window(at)
		if end.IsZero() {
			break
		}
		if stretches, _ := in.Between(end.Add(takes), end.Add(ahead), 2); !stretches[0].Open { //nolint:mnd // this one and the next
			if len(stretches) == 1 {
				return "until an operator drains it"
			}
			longest = max(longest, stretches[1].From.Sub(end))
		}
		at = end
	}
	if longest == 0 {
		return ""
	}
	return "up to " + brief(longest)
}

// fastest returns the fastest rate of a bucket, and its key.
func fastest(b Bucket) (rate admission.Rate, key string) {
	if rate = b.FastestRate(); rate != b.Rate {
		return rate, "calendar.rate"
	}
	return rate, "rate"
}
