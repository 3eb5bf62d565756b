package console_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// The overview shows what processes have found: that Redis lost data, and that a configuration was refused.
func TestNoticesAreOnTheOverview(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("reader", []string{"*"}, apikey.RoleRead))
	member := must.Get(fleet.NewMember(fleet.Config{Redis: s.redis, Timeout: patience, Buckets: func() []string { return []string{"letters"} }, About: func() fleet.About {
		return fleet.About{Name: "dispatcher", Host: "web-1", ReloadRefused: "rate: <b>", DataLost: &fleet.DataLoss{At: time.Now(), Buckets: []string{"letters"}, Count: 1}}
	}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		member.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	v := s.visitor()
	v.login("reader")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var page seen
	for range 3000 {
		if page = v.get("/console/"); strings.Contains(page.text, "Redis lost data") {
			break
		}
		<-tick.C
	}
	page.want(t, 200, "Redis lost data, seen ", "the settings of 1 bucket were gone (letters)", "its changed configuration is refused", "rate: &lt;b&gt;")
}
