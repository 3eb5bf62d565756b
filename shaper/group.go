package shaper

import (
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission"
)

// GroupSettings put the flows of a bucket into groups, such as the endpoints of a tenant under the tenant. A group has its own bounds, in addition to
// the bucket's and to each flow's. Groups take turns as flows do, and so do the flows within a group. A group exists while it has jobs, or recent
// departures that its pacer counts. There are at most as many groups as flows ([FlowSettings.MaxFlows]).
//
// A flow belongs to its group: flows of the same name in two groups are two flows. Whether a bucket has groups cannot change while it holds jobs
// other than dead letters. The zero value is not valid: start from [DefaultGroupSettings].
type GroupSettings struct {
	// Key defines the name of a job's group: one of the FlowKey constants. With [FlowKeyJob] it is the job's field Group, which is then required.
	Key string `setting:"key,redis=key"`

	// DefaultURL names the group of a job without a URL by its host, with FlowKeyHost. It has no other use here.
	DefaultURL string `setting:"-"`

	Rate        admission.Rate   `setting:"rate,redis=rate"`                   // of each group; zero: none but the bucket's
	Burst       int64            `setting:"burst,redis=burst"`                 // of a group with a rate: departures at once after a pause
	Capacity    int64            `setting:"capacity,redis=capacity"`           // as Bucket.Capacity, for each group; 0: the bucket's bound only
	MaxInFlight int64            `setting:"max_in_flight,redis=max_in_flight"` // requests of a group at a time; 0: the bucket's bound only
	Quotas      []admission.Rate `setting:"quotas,redis=quotas"`               // as Bucket.Quotas, for each group

	Budgets Budgets `setting:"budgets,redis=budgets"` // as Bucket.Budgets, for each group

	// ScheduledCapacity is as [Bucket.ScheduledCapacity], for each group; 0: the effective Capacity of the group.
	ScheduledCapacity int64 `setting:"scheduled_capacity,redis=scheduled_capacity"`
}

// DefaultGroupSettings returns the defaults. Key has none.
func DefaultGroupSettings() GroupSettings { return GroupSettings{Burst: 1} }

func (g *GroupSettings) validate() []error { return g.validateAs("group") }

// validateAs returns the faults of the settings of groups or flows, each with the key of the configuration.
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

// NameOf returns the name of a job's group, as Key defines it. Only with [FlowKeyJob] does the job's own field count. nil stands for a bucket without
// groups: then NameOf returns the job's field. An error is a [*FieldError].
func (g *GroupSettings) NameOf(job *Job) (string, error) {
	if g == nil {
		return job.Group, nil
	}
	return nameOf("group", g.Key, g.DefaultURL, job.Group, job)
}
