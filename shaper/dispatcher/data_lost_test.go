package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// After a loss of all data the fleet and the audit say so: the audit is lost with the data, and would be empty. The fleet does for a day,
// also when all dispatchers have been restarted.
func TestLostDataIsReported(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 20))
	conn := w.Server.Client()
	stop := dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Program = "dispatcher" })
	view := fleet.NewView(conn, rig.Patience)
	until(t, func() bool { // it has seen what is in force: it looks every 10 s
		seen, err := view.Look(t.Context())
		return err == nil && len(seen.Processes) == 1 && seen.Processes[0].LastBeat.Sub(seen.Processes[0].Since) > store.WatchEvery+time.Second
	})
	if err := conn.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	isReported := func() bool {
		seen, err := view.Look(t.Context())
		if err != nil {
			return false
		}
		lines := fleet.Notices(seen.Processes)
		return len(lines) == 1 && strings.HasPrefix(lines[0], "Redis lost data") && strings.Contains(lines[0], "1 bucket were gone (b)")
	}
	until(t, isReported) // at the next look of the dispatcher at what is in force, within 10 s
	records, _, err := audit.NewLog(conn, rig.Patience).Records(t.Context(), "", "", 10)
	if err != nil || len(records) != 1 || records[0].Operation != "data_lost" || records[0].Outcome != audit.Done {
		t.Errorf("the audit has %+v, %v", records, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	again := dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Program = "dispatcher" })
	until(t, isReported) // by a dispatcher that started after it
	if err := again(); err != nil {
		t.Error(err)
	}
}
