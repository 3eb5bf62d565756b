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
	oldestBytes   = 1 << 20 // bodies that one script reads
	oldestScripts = 8       // for one chunk of flows
)

// oldestJob is the job that came first, of those at the heads of lists. The zero value is none.
type oldestJob struct {
	came int64
	id   string
}

// findOldest looks for the oldest waiting job in the flows that a chunk of an audit has named, and keeps it in Redis when the audit has been
// through all flows. It looks at each flow unless bodies are large. Then it looks at as many as its bounds allow, at others each time.
func (d *bucketLoop) findOldest(ctx context.Context, w *sweepWatch, flows []string, next string) error {
	through := w.flows != "" && !strings.HasPrefix(w.flows, "g") && w.flows != "i" && (next == "0" || next == "i" || next == "g0")
	rand.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] }) //nolint:gosec // which ones come first, no secret
	for range oldestScripts {
		if len(flows) == 0 {
			break
		}
		looked, err := d.lookAtHeads(ctx, w, flows[:min(len(flows), store.MaxFlowSet)], false)
		if err != nil {
			return err
		}
		flows = flows[looked:]
	}
	if !through || w.oldest.came == 0 {
		return nil
	}
	_, err := d.lookAtHeads(ctx, w, nil, true)
	return err
}

// lookAtHeads has one script look at flows, or at the first ones of them, and returns at how many it did.
func (d *bucketLoop) lookAtHeads(ctx context.Context, w *sweepWatch, flows []string, keep bool) (looked int, err error) {
	reply, err := d.shared.Run(ctx, lua.OldestWaiting, d.Keys.Of(lua.OldestWaiting, flows...), oldestBytes, store.BoolArg(keep), w.oldest.came, w.oldest.id)
	if err != nil {
		return 0, fmt.Errorf("bucket %q: look for the oldest job: %w", d.Name, err)
	}
	r := lua.NewReader(reply)
	looked = int(r.Int())
	w.oldest = oldestJob{r.Int(), r.Text()}
	if r.Err() != nil || looked > len(flows) || looked == 0 && len(flows) > 0 {
		return 0, fmt.Errorf("bucket %q: script oldest_waiting answered %v to %d flows", d.Name, reply, len(flows))
	}
	return looked, nil
}
