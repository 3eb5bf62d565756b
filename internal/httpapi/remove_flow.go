package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// removalTurn is how long one request works on a removal.
const removalTurn = 2 * time.Second

// removeFlow drops all that is kept of a flow, or counts it, part by part.
func (o *ops) removeFlow(r *http.Request, in *FlowRemove) (*opsview.RemovedFlow, error) {
	if !in.DryRun && (in.Confirm == nil || *in.Confirm != in.Flow) {
		return nil, invalid([]*shaper.FieldError{{Field: "confirm", Reason: fmt.Sprintf("want %q, the flow's name: all that is kept of it is dropped for good", in.Flow)}})
	}
	ctx, cancel := o.patient(r)
	defer cancel()
	sum := operator.FlowRemoval{Next: in.Cursor}
	for began := time.Now(); ; {
		part, err := flowControl(o.as(r).Bucket(in.Bucket), in.FlowName).Remove(ctx, sum.Next, in.DryRun)
		if err != nil {
			return nil, o.partial(r, err, func(p *problem) { p.Purged, p.Dropped = sum.Waiting+part.Waiting, sum.Dead+part.Dead })
		}
		if sum.Add(part); sum.Next == "" || time.Since(began) > removalTurn {
			break
		}
	}
	return &opsview.RemovedFlow{
		Bucket: in.Bucket, Group: in.Group, Flow: in.Flow, Waiting: sum.Waiting, Dead: sum.Dead, Results: sum.Results,
		Own: append([]string{}, sum.Own...), InFlight: sum.InFlight, Next: sum.Next,
	}, nil
}
