package dispatcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	oldestBytes   = 1 << 20 // bodies read by one script
	oldestScripts = 8       // for one chunk of flows
)

// oldestJob is the job enqueued first, of the jobs at the heads of lists. The zero value means none.
type oldestJob struct {
	came int64
	id   string
}

// findOldest searches the flows in a chunk of an audit for the oldest waiting job. After all flows have been audited, it stores the job in Redis. It
// reads each flow, unless bodies are large: then it reads as many as its bounds allow, in a random order.
func (p *bucketPatrol) findOldest(ctx context.Context, flows []string, next string) error {
	through := p.flows != "" && !strings.HasPrefix(p.flows, "g") && p.flows != "i" && (next == "0" || next == "i" || next == "g0")
	rand.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] }) //nolint:gosec // which ones come first, no secret
	for range oldestScripts {
		if len(flows) == 0 {
			break
		}
		looked, err := p.lookAtHeads(ctx, flows[:min(len(flows), store.MaxFlowSet)], false)
		if err != nil {
			return err
		}
		flows = flows[looked:]
	}
	if !through || p.oldest.came == 0 {
		return nil
	}
	_, err := p.lookAtHeads(ctx, nil, true)
	return err
}

// lookAtHeads runs one script on flows, and returns how many of them, from the first on, it has read.
func (p *bucketPatrol) lookAtHeads(ctx context.Context, flows []string, keep bool) (looked int, err error) {
	err = p.run(ctx, p.shared, lua.OldestWaiting, flows, func(r *lua.Reader) {
		looked = int(r.Int())
		p.oldest = oldestJob{r.Int(), r.Text()}
	}, oldestBytes, store.BoolArg(keep), p.oldest.came, p.oldest.id)
	if err == nil && (looked > len(flows) || looked == 0 && len(flows) > 0) {
		err = fmt.Errorf("bucket %q: cannot tell the oldest waiting job: script oldest_waiting returned %d of %d flows", p.Name, looked, len(flows))
	}
	return looked, err
}
