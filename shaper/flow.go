package shaper

// Bounds of flows and quotas.
const (
	MaxQuotas     = 4
	MaxQuotaCount = 100_000 // departures; each is recorded
	MaxFlows      = 10_000_000
	MaxWeight     = 1000

	// DefaultMaxFlows is the default bound of flows with jobs at a time, per bucket.
	DefaultMaxFlows = 1_000_000
)

// What names the flow of a job.
const (
	FlowKeyJob    = "job"     // the job's field flow, which is then required
	FlowKeyHost   = "host"    // the host of its url, or of DefaultURL, in the spelling of [Origin.Authority]
	FlowKeyCaller = "caller"  // the caller that enqueues the job: Identity.Caller
	FlowKeyHeader = "header:" // plus its name: a header of the enqueue request, in Identity.Headers
)

// FlowSettings divide a bucket into flows. Each flow is a queue with its own bounds, in addition to the bucket's. A flow exists from its first job
// on, while it has jobs or recent departures that its pacer counts. The flow that has waited longest goes first, and a flow that its own bounds hold
// back delays no other.
//
// The zero value is not valid: start from [DefaultFlowSettings]. A changed Key names the flows of new jobs only; waiting jobs stay in theirs. Whether
// a bucket has flows at all cannot change while it holds jobs other than dead letters.
type FlowSettings struct {
	// The settings shared with groups apply to each flow here. With [FlowKeyJob], Key means the job's field Flow.
	GroupSettings `setting:",squash,redis=flow_"`

	MaxFlows int64 `setting:"max_flows,redis=max_flows"` // concurrent flows with jobs, or with departures that still count

	// MaxPerCaller is how many of these flows may be made by one caller with an API key; 0: half of MaxFlows. A caller may be refused from 90 % of it
	// on. Flows of jobs without a caller count for no caller.
	MaxPerCaller int64 `setting:"max_per_caller,redis=max_per_caller"`

	// MustExist makes the bucket refuse jobs of flows for which an operator has made no setting: [ReasonUnknownFlow]. A pause is no setting. Jobs can
	// still wait in such a flow after it was reset, or after a redrive: they stay there until it has a setting.
	MustExist bool `setting:"must_exist,redis=flow_must_exist"`

	// WhenDisabled says what happens to jobs of a disabled flow; "" is RefuseDisabled. KeepDisabled needs a Capacity.
	WhenDisabled WhenDisabled `setting:"when_disabled"`

	// NeedsURL, with MustExist, requires a URL of a job unless its flow has one.
	NeedsURL bool `setting:"-"`
}

// WhenDisabled says what happens to jobs of a disabled flow: see [Disabled].
type WhenDisabled string

// The values of WhenDisabled.
const (
	RefuseDisabled WhenDisabled = "refuse" // new jobs are refused ([ReasonFlowDisabled]), and waiting ones become dead letters
	KeepDisabled   WhenDisabled = "keep"   // jobs wait, up to the capacity of the flow, even if their receiver was gone; they depart once the flow is enabled
)

// EffectiveMaxPerCaller returns MaxPerCaller, or its default.
func (f *FlowSettings) EffectiveMaxPerCaller() int64 {
	if f.MaxPerCaller > 0 || f.MaxFlows == 0 {
		return f.MaxPerCaller
	}
	return (f.MaxFlows + 1) / 2
}

// DefaultFlowSettings returns the defaults. Key has none.
func DefaultFlowSettings() FlowSettings {
	return FlowSettings{GroupSettings: DefaultGroupSettings(), MaxFlows: DefaultMaxFlows}
}

// validate returns the faults, each with the key of the configuration.
func (f *FlowSettings) validate() []error {
	found := faults{prefix: "flow."}
	found.inRange("max_flows", f.MaxFlows, 1, MaxFlows)
	found.inRange("max_per_caller", f.MaxPerCaller, 0, MaxFlows)
	switch w := f.WhenDisabled; {
	case w != "" && w != RefuseDisabled && w != KeepDisabled:
		found.add("when_disabled", "%q: want %s or %s", w, RefuseDisabled, KeepDisabled)
	case w == KeepDisabled && f.Capacity == 0:
		found.add("when_disabled", "%q: needs flow.capacity: without one a disabled flow could fill the bucket", w)
	}
	return append(f.validateAs("flow"), found.errs...)
}
