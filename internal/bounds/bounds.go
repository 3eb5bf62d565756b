// Package bounds lists everything that grows with the input of callers, with its bound, the highest share of one caller, and what happens when it is
// full. The tests compare the list with the code: they fail on a map, a cache, a list that outlives a call or a key of Redis that is missing.
// scripts/operations generates the table of docs/bounds.md from it.
package bounds

import (
	"fmt"
	"strconv"
	"strings"
)

// Bound is one thing that all callers of a process, or of a bucket, share.
type Bound struct {
	Name  string
	What  string // is counted
	Most  int64  // the bound, or the default of the setting; 0: see Where
	Where string // the place of the number, as "file: constant", or its setting
	Of    string // what the bound holds for: a process, a bucket
	Share string // the highest share of one caller; one of the texts below if it is a rule
	Full  string // what happens when it is full
}

// Rules of shares.
const (
	// Half is the rule of internal/httpapi/shares.go: a caller gets no more than it leaves free.
	Half = "what it leaves free: half alone, one third each for two"

	// Free needs no share: a dropped entry costs a round trip or a line of a log, and no caller is refused.
	Free = "all: nobody is refused for it"

	// Flows says that the operator divides it.
	Flows = "all, or the bound of its flows and groups where they are set"
)

// All are the bounds, in the order of the page.
var All = []Bound{
	{"requests", "requests at a time", 4096, "internal/httpbound/httpbound.go: DefaultConnections", "process: `producer.max_connections`", Half, "503 `overloaded`"},
	{"waiters", "requests that wait for a result", 0, "half of the requests", "process", Half, "the answer is 202 at once; of the proxy 503"},
	{"bodies", "bytes of bodies, of 1 KiB for each job of a batch, and of answers above 4 KiB at a time", 128 << 20, "internal/httpbound/httpbound.go: DefaultBodyMemory", "process: `producer.body_memory`", Half + "; one body alone fits", "503 `overloaded`"},
	{"connections", "connections", 0, "the requests and 64", "process", "all that are idle", "the longest idle one closes"},
	{"lists", "lists of jobs at a time", 4, "internal/httpapi/lists.go: listsAtOnce", "caller", "its own", "the next one waits 10 s, then 503"},
	{"streams", "streams of events", 200, "internal/httpapi/stream.go: maxStreams", "process", Half, "503 `overloaded`"},
	{"wrong-keys", "addresses with wrong keys in a minute", 10_000, "internal/console/attempts.go: maxAddresses", "process", "all: a right key logs in however many were wrong", "further addresses are refused uncounted"},
	{"sessions", "sessions of the console", 20, "internal/session/session.go: Most", "key", "its own", "its oldest one ends"},
	{"jobs", "unfinished jobs", 10_000, "shaper/bucket.go: Capacity", "bucket: `capacity`, `scheduled_capacity`", Flows, "429 `bucket-full`"},
	{"dead", "dead letters", 0, "ten times `capacity`", "bucket: `dead_capacity`, `dead_bytes`", "all of it alone; above it others go on until each has what it leaves free of twice the bound", "429 `dead-full` to callers above their share; with `drop_oldest` the oldest one of all goes, whichever caller has it: no index has the dead letters of a caller or a flow in their order"},
	{"flows", "flows that have jobs or a rate", 1_000_000, "shaper/flow.go: DefaultMaxFlows", "bucket: `flow.max_flows`", "`flow.max_per_caller`, half unless it is set", "429 `too-many-flows`"},
	{"ids", "ids of ended jobs", 1_000_000, "shaper/bucket.go: DedupeMax", "bucket: `dedupe_max`", "what others leave: all alone, half each of two", "the oldest one of the caller that has the most is forgotten, and a job of this id is new again; a metric and an alert say so"},
	{"results", "results that are kept", 10_000, "shaper/result.go: Max", "bucket: `results_max`, `results_bytes`", "what other flows leave, in a bucket without flows what other callers leave: all alone, half each of two", "the oldest one of the flow or caller that has the most goes"},
	{"bundles", "bundles", 10_000, "lua/lib/bundle.lua: MOST", "bucket", Half, "409 `too-many-bundles`"},
	{"callbacks", "callbacks on their way", 0, "the capacity of the bucket that delivers them", "bucket", Flows, "they wait"},
	{"events", "events for hooks", 1000, "lua/lib/outbox.lua: MOST", "bucket", Half + "; one a minute of a type and a flow", "further ones are counted in a metric"},
	{"schedules", "schedules", 1000, "shaper/schedule.go: MaxSchedules", "bucket", "all: operators make them", "409"},
	{"usage", "rows of usage in a day: caller, model and flow", 900, "lua/lib/use.lua: MOST", "bucket", Half, "the call counts in the row of its model (99 of these, shared alike), then in one row of all"},
	{"models", "models with estimates of their own, and all others", 51, "shaper/learned_estimate.go: MaxLearnedEstimates", "bucket", Half, "the model counts as `other`, and so does one that `models` does not list"},
	{"responses", "ids of responses whose usage comes later", 10_000, "lua/lib/responses.lua: MOST", "bucket", Half, "an old one of the caller is forgotten, a settled one first: its usage is charged in full"},
	{"begun", "requests of such responses", 10_000, "workers/llm/charges.go: rememberedIDs", "process and bucket", Half, "the oldest of the caller is forgotten: its usage changes no estimate"},
	{"limit-keys", "callers that a limit counts", 100_000, "admission/limit.go: DefaultMaxKeys", "limit, alone and in each bucket: `max_keys`", Half + "; at the check endpoint all alone, and above it others go on until each has what it leaves free of twice the bound", "further callers count as one; a metric and the log say so"},
	{"given-limits", "limits that a program gives by value", 1000, "admission/limiter.go: givenLimits", "process", Free, "the longest unused is removed, and made again when it is used"},
	{"local-keys", "callers that a limit counts in the process", 16_384, "admission/local.go: maxLocals", "process", Free, "the longest unused is reported and forgotten"},
	{"refusals", "refusals that are repeated without Redis", 16_384, "shaper/producer/refusals.go: maxRefusals", "process and bucket, and limiter", Free, "the longest unused is forgotten"},
	{"spread", "callers whose returns are spread", 16_384, "admission/spread.go: maxSpreadKeys", "process and bucket, and limiter", Free, "the longest unused is forgotten"},
	{"refused", "refused callers of a minute that are named", 200, "admission/refused_callers.go: maxRefused", "process and limit", Free, "others count as one"},
	{"doubtful", "jobs that were tried again after a 401", 1000, "workers/httpworker/refused.go: mostDoubtful", "process and bucket", Free, "all are forgotten: the next 401 of each counts as its first"},
	{"origins", "origins that refuse every request", 4096, "workers/outgoing/unprocessed.go: maxOrigins", "process and bucket", Free, "all are forgotten: each may refuse for 10 s more before it counts as a failure"},
	{"names", "receivers by whether they connect", 4096, "workers/evidence.go: maxRecords", "process and bucket", Free, "the longest untried is forgotten"},
	{"conns", "connections to receivers", 0, "twice `dispatcher.concurrency`", "process and bucket", Free, "the next one closes after its request"},
	{"holds", "scopes that a claim ran ahead of", 4096, "shaper/dispatcher/gate.go: maxClosings", "process and bucket", Free, "all are forgotten: jobs that were claimed before a hold are sent into it, for 200 ms"},
	{"spacings", "flows and groups whose departures are spaced", 4096, "shaper/dispatcher/departures.go: maxSpacings", "process and bucket", Free, "the idle ones are forgotten"},
	{"own-settings", "settings of flows, read", 1024, "shaper/dispatcher/claim_answer.go: maxOwnTexts", "process and bucket", Free, "all are read again"},
	{"failures", "flows whose failures are logged apart", 1024, "shaper/dispatcher/outcome_log.go: failureLogFlows", "process and bucket", Free, "others share one line"},
	{"reasons", "reasons of attempts in metrics", 64, "shaper/internal/metrics/reason.go: maxReasons", "process", Free, "others count as one"},
	{"processes", "processes that report", 1000, "lua/heartbeat.lua: MOST", "fleet", "all: programs of the operator", "further ones are not seen"},
	{"audit", "records of the audit", 0, "64 MiB of changes, 64 MiB begun, 8 MiB that changed nothing, 8 MiB of logins", "fleet", "see [the audit](audit.md)", "the oldest one of its author and class goes, or of the author that holds the most"},
}

// Table is the list as a table of Markdown, without its head.
func Table() string {
	var b strings.Builder
	for i := range All {
		bound := &All[i]
		most := bound.Where
		if bound.Most > 0 {
			most = grouped(bound.Most)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", bound.What, most, bound.Of, bound.Share, bound.Full)
	}
	return b.String()
}

// grouped is a number with commas.
func grouped(n int64) string {
	const mebibyte = 1 << 20
	if n >= mebibyte && n%mebibyte == 0 {
		return strconv.FormatInt(n/mebibyte, 10) + " MiB"
	}
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Head is the header of the table.
const Head = "| what callers share | bound | of each | a caller takes at most | when it is full |\n|---|---|---|---|---|\n"
