package scripts_test

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tundish-io/tundish/lua"
)

// lease is a job as claim.lua hands it out.
type lease struct {
	id                            string
	slot, epoch, number, attempts int64
	claim, mark                   string
	flow, own                     string // with flows only
	batch                         int64  // its number, 0 none
	charged                       string // of budgets, as the claim told it
	inDoubt                       bool   // an earlier attempt may have taken effect
}

// sameClaim reports whether two leases of a job are of one claim. A model repeats claims that were answered; a dispatcher repeats one
// only if no answer came, and cannot have settled what it got. If the id came again meanwhile, nothing tells the two leases apart.
func (l lease) sameClaim(other lease) bool {
	return l.id == other.id && l.epoch == other.epoch && l.claim == other.claim
}

// owner is the claim as the meta of the job has it.
func (l lease) owner() string {
	if l.batch == 0 {
		return l.claim
	}
	return fmt.Sprint(l.claim, "#", l.batch)
}

type claimed struct {
	now, next, inFlight, expired int64
	lone                         int64 // which of the jobs is on its last chance, counted from 1
	rateCount, ratePer, freeSlot int64
	opening, closes              int64 // the end of the window, 0 none
	jobs                         []lease
	died                         []died
}

func (c claimed) ids() string {
	ids := make([]string, len(c.jobs))
	for i, job := range c.jobs {
		ids[i] = job.id
	}
	return strings.Join(ids, " ")
}

// ask is a claim; a zero means the default.
type ask struct {
	dispatcher, claim          string
	want, horizon, lease, lead int64 // want: none if it is below 0
	bytes                      int64 // 0 means claimBytes
	stepped                    int64 // by which the clock stepped forwards
	expected                   int64 // the latest time that the dispatcher expects
	holdsLone                  bool  // the process holds a job on its last chance
}

func (r *rig) claim(a ask) claimed {
	r.t.Helper()
	if a.dispatcher == "" {
		a.dispatcher = "d"
	}
	if a.claim == "" {
		a.claim = fmt.Sprint("claim", nextClaim())
	}
	if a.want == 0 {
		a.want = 100
	}
	if a.horizon == 0 {
		a.horizon = 200_000
	}
	if a.lease == 0 {
		a.lease = 30 * second
	}
	in := r.reader(lua.Claim, r.keysOf(lua.Claim, ""), a.dispatcher, a.claim, a.want, a.horizon, a.lease, a.lead, lastChance, !a.holdsLone,
		expiredLast, 0, r.member(), "tundish:wake", r.name, cmp.Or(a.bytes, claimBytes), a.stepped, r.steps, a.expected, 1)
	c := r.readClaim(in, a.claim)
	return c
}

func (r *rig) readClaim(in *lua.Reader, claim string) claimed {
	r.t.Helper()
	c := claimed{now: in.Int(), next: in.Int(), inFlight: in.Int(), expired: in.Int(), lone: in.Int(),
		rateCount: in.Int(), ratePer: in.Int(), freeSlot: in.Int()}
	r.steps, c.opening, c.closes = in.Int(), in.Int(), in.Int()
	count, hasFlows := in.Int(), r.withFlows() > 0
	for range count {
		job := lease{id: in.Text(), slot: in.Int(), epoch: 1, number: 1, claim: claim}
		body := in.Text()
		if hasFlows {
			job.flow, job.own = in.Text(), in.Text()
		}
		parts := strings.SplitN(body, " ", 4)
		if len(parts) != 4 || len(parts[2]) < 14 {
			r.t.Fatalf("claim: the body of %s is %q", job.id, body)
		}
		job.mark = parts[2][:13]
		if _, more, ok := strings.Cut(parts[2], "~"); ok {
			more, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimLeft(more, "0123456789"), "^"), "=")
			job.mark += more // its caller
		}
		c.jobs = append(c.jobs, job)
	}
	for in.Left() > 0 {
		nth := in.Int()
		if nth == -2 {
			first, size, number := in.Int(), in.Int(), in.Int()
			for i := range size {
				c.jobs[first-1+i].batch = number
			}
			continue
		}
		if nth == lua.ClaimCharged {
			job := &c.jobs[in.Int()-1]
			job.charged = in.Text() + " " + in.Text()
			continue
		}
		if nth == lua.ClaimInDoubt {
			c.jobs[in.Int()-1].inDoubt = true
			continue
		}
		if nth <= 0 {
			c.died = append(c.died, died{why: nth, id: in.Text(), flow: in.Text(), attempts: in.Int()})
			continue
		}
		job := &c.jobs[nth-1]
		job.epoch, job.number, job.attempts = in.Int(), in.Int(), in.Int()
	}
	r.ok(in.Err())
	return c
}
