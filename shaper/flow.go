package shaper

// Bounds of flows and quotas.
const (
	MaxQuotas     = 4
	MaxQuotaCount = 100_000 // departures, which are remembered one by one
	MaxFlows      = 10_000_000
	MaxWeight     = 1000

	// DefaultMaxFlows is how many flows of a bucket may have jobs at a time where
	// no other number is given.
	DefaultMaxFlows = 1_000_000
)

// What may name the flow of a job.
const (
	FlowKeyJob    = "job"     // its field flow, required then
	FlowKeyHost   = "host"    // the host of its url, or of DefaultURL, in the spelling of [Origin.Authority]
	FlowKeyCaller = "caller"  // the caller that enqueues the job: Identity.Caller
	FlowKeyHeader = "header:" // and the name: a header of the request that enqueues it, in Identity.Headers
)

// FlowSettings part a bucket into flows: each is a queue of its own, with its own
// bounds under the bucket's. A flow is there from its first job on, and as long as it
// has jobs or its pace says anything. The flow that has waited longest goes first, and
// one that its own bounds hold back delays no other flow.
//
// The zero value is not valid: start from [DefaultFlowSettings]. Another Key names the
// jobs that come from then on; those that wait stay in their flows. Whether a bucket
// has flows at all cannot change while it holds jobs other than dead letters.
type FlowSettings struct {
	// What groups have too holds for each flow here. With [FlowKeyJob] the Key is the job's field Flow.
	GroupSettings `setting:",squash,redis=flow_"`

	MaxFlows int64 `setting:"max_flows,redis=max_flows"` // flows at a time that have jobs, or a pace that still counts

	// MaxPerCaller is how many of these one caller of an API key may have made; 0: half of MaxFlows. A caller may be refused from nine
	// tenths on. Flows of jobs without a caller count for no caller.
	MaxPerCaller int64 `setting:"max_per_caller,redis=max_per_caller"`

	// MustExist has the bucket take jobs only of flows to which an operator has given a setting of their own: [ReasonUnknownFlow]. A pause
	// is no setting. Jobs that wait in a flow without any, because it was reset or they were redriven, stay there until it has one.
	MustExist bool `setting:"must_exist,redis=flow_must_exist"`

	// WhenDisabled says what happens to jobs of a disabled flow; "" is RefuseDisabled. KeepDisabled needs a Capacity.
	WhenDisabled WhenDisabled `setting:"when_disabled"`

	// NeedsURL, with MustExist, has a job name its URL unless its flow has one.
	NeedsURL bool `setting:"-"`
}

// WhenDisabled says what happens to jobs of a disabled flow: see [Disabled].
type WhenDisabled string

// What WhenDisabled may be.
const (
	RefuseDisabled WhenDisabled = "refuse" // new ones are refused ([ReasonFlowDisabled]), and those that wait become dead letters
	KeepDisabled   WhenDisabled = "keep"   // they wait, those whose receiver was gone too, up to the capacity of the flow, and depart once an operator has enabled it
)

// EffectiveMaxPerCaller is MaxPerCaller, or its default.
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
