package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The overview of 1,000 buckets is a few requests to this server, and its cost is told.
func TestOverviewOfThousand(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	var config strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&config, "[[buckets]]\nname = \"customer-%03d\"\nrate = \"50/s\"\nwebhook = { url = \"RECEIVER/x\", allow_networks = [\"127.0.0.0/8\"] }\n", i)
	}
	s := newSite(t, config.String(), false)
	p.as(look{script: true, width: 1280})
	if status := p.open(s.console); status != http.StatusOK {
		t.Fatal(status)
	}
	p.says("1000 buckets")
	paint := -1.0
	await(t, "it is painted", func() bool {
		paint = eval[float64](p, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
		return paint >= 0
	})
	const longTasks = `new Promise((done) => {
		new PerformanceObserver((list) => done(list.getEntries().map((e) => Math.round(e.duration)))).observe({type: 'longtask', buffered: true});
		setTimeout(() => done([]), 1000);
	})`
	long := eval[[]int](p, longTasks, chromedp.EvalAwaitPromise)
	p.mu.Lock()
	defer p.mu.Unlock()
	const most = 8
	if p.asked > most {
		t.Errorf("%d requests, want at most %d", p.asked, most)
	}
	for _, r := range p.loaded {
		if !strings.HasPrefix(r.Response.URL, s.console) {
			t.Errorf("it asks %s", r.Response.URL)
		}
	}
	if p.bytes > 100<<10 {
		t.Errorf("%.0f bytes are transferred, want at most 100 KiB", p.bytes)
	}
	t.Logf("1,000 buckets: first paint after %.0f ms, %d requests, %.0f bytes, tasks above 50 ms: %v ms", paint, p.asked, p.bytes, long)
}
