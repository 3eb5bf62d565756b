package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// stateAny is the --state of all lists of jobs together.
const stateAny = "any"

// jobStory lists the jobs of all states that a query means, at most limit of each list: those that wait or are in flight, then dead letters, then
// those that are done and kept, the newest first.
func (a *invocation) jobStory(ctx context.Context, c *api, query httpapi.JobQuery, limit int) error {
	waiting, moreWait, err := a.jobsOf(ctx, c, query, limit)
	if err != nil {
		return err
	}
	dead, err := c.dead(ctx, httpapi.DeadQuery{
		BucketName: query.BucketName, Page: httpapi.Page{Limit: min(limit, pageOfJobs)},
		DeadFilter: operator.DeadFilter{Flow: query.Flow, Group: query.Group, Since: query.Since, Until: query.Until},
	})
	if err != nil {
		return err
	}
	query.State = shaper.StateDone
	done, moreDone, err := a.jobsOf(ctx, c, query, limit)
	if err != nil {
		return err
	}
	all := slices.Concat(waiting, dead.Dead, done)
	if len(all) == 0 && !a.json {
		a.note("bucket %q has no such job: none waits, is in flight, dead, or done and kept (result_retention)", query.Bucket)
		return nil
	}
	now := time.Now()
	err = a.print(all, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tGROUP\tFLOW\tENQUEUED\tENDED\tATTEMPTS\tSTATUS\tREASON")
		for _, j := range all {
			ended := j.DiedAt
			if j.State == shaper.StateDone {
				ended = j.DepartedAt
			}
			last := deref(j.LastResponse)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", j.ID, j.State, dash(line(j.Group, 40)), dash(line(deref(j.Flow), 40)),
				since(j.EnqueuedAt, now), since(ended, now), deref(j.Attempts), dash(status(last.Status)), dash(last.Reason))
		}
	})
	if more := map[string]bool{"--state waiting": moreWait != "", "dead list": dead.Next != "", "--state done": moreDone != ""}; err == nil && !a.json {
		for _, list := range []string{"--state waiting", "dead list", "--state done"} {
			if more[list] {
				a.note("there are more than %d: raise --limit, or use %s", limit, list)
			}
		}
	}
	return err
}
