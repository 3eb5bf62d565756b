package shaper

import (
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
)

// GroupSettings put the flows of a bucket into groups, such as the endpoints of a tenant
// under the tenant. A group has bounds of its own under the bucket's, which its flows
// share; those of the flow hold too. Groups take turns as flows do, and within a group
// its flows do. A group is there as long as it has jobs, or its pace says anything; there
// are at most as many as flows ([FlowSettings.MaxFlows]).
//
// A flow is one of its group: flows of the same name in two groups are two flows.
// Whether a bucket has groups cannot change while it holds jobs other than dead letters.
// The zero value is not valid: start from [DefaultGroupSettings].
type GroupSettings struct {
	// Key is what names the group: one of the FlowKey constants. With [FlowKeyJob] it is
	// the job's field Group, required then.
	Key string `setting:"key,redis=key"`

	// DefaultURL is where jobs go that name no URL: its host names their group with
	// FlowKeyHost. It is of no other use here.
	DefaultURL string `setting:"-"`

	Rate        admission.Rate   `setting:"rate,redis=rate"`                   // of each group; zero: none but the bucket's
	Burst       int64            `setting:"burst,redis=burst"`                 // of a group with a rate: departures at once after a pause
	Capacity    int64            `setting:"capacity,redis=capacity"`           // as Bucket.Capacity, for each group; 0: the bucket's bound only
	MaxInFlight int64            `setting:"max_in_flight,redis=max_in_flight"` // requests of a group at a time; 0: the bucket's bound only
	Quotas      []admission.Rate `setting:"quotas,redis=quotas"`               // as Bucket.Quotas, for each group

	Budgets Budgets `setting:"budgets,redis=budgets"` // as Bucket.Budgets, for each group

	// ScheduledCapacity is as that of [Bucket], for each group; 0: as the Capacity that holds for the group.
	ScheduledCapacity int64 `setting:"scheduled_capacity,redis=scheduled_capacity"`
}

// DefaultGroupSettings returns the defaults. Key has none.
func DefaultGroupSettings() GroupSettings { return GroupSettings{Burst: 1} }

func (g *GroupSettings) validate() []error { return g.validateAs("group") }

// validateAs returns the faults of settings of groups, or of flows, each with the key of
// the configuration.
func (g *GroupSettings) validateAs(what string) []error {
	f := faults{prefix: what + "."}
	header, isHeader := strings.CutPrefix(g.Key, FlowKeyHeader)
	switch {
	case g.Key == "":
		f.add("key", "is missing: say what names the %s of a job: job, host, caller or header:X-Name", what)
	case isHeader && header == "", !isHeader && g.Key != FlowKeyJob && g.Key != FlowKeyHost && g.Key != FlowKeyCaller:
		f.add("key", "%q: want job, host, caller or header:X-Name", g.Key)
	}
	if !g.Rate.IsZero() {
		f.pace(g.Rate, g.Burst)
	}
	f.inRange("burst", g.Burst, 1, MaxBurst)
	f.inRange("capacity", g.Capacity, 0, MaxCapacity)
	f.inRange("scheduled_capacity", g.ScheduledCapacity, 0, MaxCapacity)
	f.inRange("max_in_flight", g.MaxInFlight, 0, MaxCapacity)
	return slices.Concat(f.errs, validateQuotas(what+".quotas", g.Quotas), g.Budgets.validate(what+".budgets"))
}

// NameOf returns the group of a job, as Key says: what the job says of its group counts
// with [FlowKeyJob] only. Of a bucket without groups, which nil stands for, it is what
// the job says. An error is a [*FieldError].
func (g *GroupSettings) NameOf(job *Job) (string, error) {
	if g == nil {
		return job.Group, nil
	}
	return nameOf("group", g.Key, g.DefaultURL, job.Group, job)
}
