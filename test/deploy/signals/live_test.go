//go:build ship

package signals

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Prometheus scrapes a run each second. A receiver fails all the time; then a dispatcher is killed, the other one gets a faulty configuration, then it is
// killed too, and at last Redis. Each query of each panel returns data, Prometheus evaluates each alert, and alerts tell of what happened and of
// nothing else.
func TestSignalsOfARun(t *testing.T) {
	r := startRun(t)
	p := startPrometheus(r)
	began := time.Now()
	await(t, "the slow receiver has jobs of both dispatchers", func(ctx context.Context) bool {
		return p.value(ctx, `max(tundish_bucket_in_flight_jobs{bucket="slow"})`) >= 4 && p.value(ctx, `min(tundish_bucket_dispatchers)`) == 2
	})
	p.wantStates(t, nil, "TundishProcessDown", "TundishNoDispatcher", "TundishRedisDown", "TundishConfigReloadRefused", "TundishLeasesReclaimed", "TundishSettingsLost", "TundishCallbacksWait")

	r.dispatchers[1].kill()
	alive := r.dispatchers[0]
	if err := os.WriteFile(alive.config, []byte("not a configuration"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantStates(t, []string{"TundishProcessDown", "TundishLeasesReclaimed", "TundishConfigReloadRefused", "TundishBreakerOpen", "TundishDeadLettersGrow", "TundishAttemptsFail", "TundishRefusals"},
		"TundishNoDispatcher", "TundishRedisDown", "TundishSettingsLost", "TundishPauseForgotten", "TundishCallbacksWait")
	p.wantPanels(t, began)
	p.wantScrapes(t, r.producer)

	alive.kill()
	p.wantStates(t, []string{"TundishNoDispatcher"}, "TundishRedisDown")
	r.redis.kill()
	p.wantStates(t, []string{"TundishRedisDown"})
}

// server is a Prometheus.
type server string // its URL

func startPrometheus(r *run) server {
	r.t.Helper()
	rules, err := filepath.Abs(prometheus + "alerts.yaml")
	if err != nil {
		r.t.Fatal(err)
	}
	config := filepath.Join(r.dir, "prometheus.yml")
	text := fmt.Sprintf(`
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [%q]
scrape_configs:
  - job_name: tundish
    static_configs: [{ targets: [%q, %q, %q] }]
`, rules, r.producer, r.dispatchers[0].address, r.dispatchers[1].address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	address := freeAddress(r.t)
	r.start("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(r.dir, "tsdb"), "--web.listen-address="+address, "--log.level=warn")
	await(r.t, "Prometheus is ready", func(ctx context.Context) bool { return status(ctx, "http://"+address+"/-/ready") == http.StatusOK })
	return server("http://" + address)
}

// get asks the HTTP API of Prometheus.
func (s server) get(ctx context.Context, path string, values url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, string(s)+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus answers %s: %s", answer.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// value is that of a query with one series, -1 without one.
func (s server) value(ctx context.Context, query string) float64 {
	var data struct{ Result []struct{ Value [2]any } }
	if err := s.get(ctx, "query", url.Values{"query": {query}}, &data); err != nil || len(data.Result) != 1 {
		return -1
	}
	n, err := strconv.ParseFloat(fmt.Sprint(data.Result[0].Value[1]), 64)
	if err != nil {
		return -1
	}
	return n
}

// wantStates waits until Prometheus has evaluated all alerts without an error, those named first have begun, and the quiet ones have not.
// An alert has begun when it is pending or fires: most of them fire minutes later.
func (s server) wantStates(t *testing.T, begun []string, quiet ...string) {
	t.Helper()
	all := alerts(t)
	var missing []string
	defer func() {
		if len(missing) > 0 {
			t.Errorf("not so: %q", missing)
		}
	}()
	await(t, fmt.Sprintf("%q have begun, and %q have not", begun, quiet), func(ctx context.Context) bool {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, State, Health, LastError string }
			}
		}
		if err := s.get(ctx, "rules", nil, &data); err != nil {
			return false
		}
		states := map[string]string{}
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rule.Health == "err" {
					t.Fatalf("prometheus cannot evaluate %s: %s", rule.Name, rule.LastError)
				}
				if rule.Health == "ok" {
					states[rule.Name] = rule.State
				}
			}
		}
		missing = nil
		for _, a := range all {
			state, isKnown := states[a.Alert]
			if !isKnown || slices.Contains(begun, a.Alert) && state == "inactive" || slices.Contains(quiet, a.Alert) && state != "inactive" {
				missing = append(missing, a.Alert+" is "+cmp.Or(state, "unknown"))
			}
		}
		return len(missing) == 0
	})
}

// wantPanels waits until each query of each panel has returned a number.
func (s server) wantPanels(t *testing.T, since time.Time) {
	t.Helper()
	queries := map[string]string{}
	asGrafana := strings.NewReplacer("$__rate_interval", "10s", "$bucket", ".*")
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				queries[fmt.Sprintf("%s: panel %d, %s, %s", d.file, p.ID, p.Title, target.RefID)] = asGrafana.Replace(target.Expr)
			}
		}
	}
	defer func() {
		for where, query := range queries {
			t.Errorf("%s has no data: %s", where, query)
		}
	}()
	all := len(queries)
	await(t, "each query of each panel returns data", func(ctx context.Context) bool {
		for where, query := range queries {
			if s.hasData(ctx, t, query, since) {
				delete(queries, where)
			}
		}
		return len(queries) == 0
	})
	t.Logf("%d queries of panels returned data", all)
}

// hasData reports whether a query had a number at any time since then.
func (s server) hasData(ctx context.Context, t *testing.T, query string, since time.Time) bool {
	t.Helper()
	var data struct{ Result []struct{ Values [][2]any } }
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	err := s.get(ctx, "query_range", url.Values{"query": {query}, "start": {seconds(since)}, "end": {seconds(time.Now())}, "step": {"1"}}, &data)
	if err != nil {
		if ctx.Err() == nil {
			t.Fatalf("%s: %v", query, err)
		}
		return false
	}
	for _, series := range data.Result {
		for _, value := range series.Values {
			if value[1] != "NaN" {
				return true
			}
		}
	}
	return false
}

// wantScrapes wants a process that is scraped each second to answer nearly always: this machine may be busy.
func (s server) wantScrapes(t *testing.T, instance string) {
	t.Helper()
	of := fmt.Sprintf("{instance=%q}[20s]", instance)
	await(t, instance+" was scraped each second for 20 s", func(ctx context.Context) bool {
		return s.value(ctx, "count_over_time(up"+of+")") >= 19
	})
	ctx := t.Context()
	answered := s.value(ctx, "avg_over_time(up"+of+")")
	slowest, mean := s.value(ctx, "max_over_time(scrape_duration_seconds"+of+")"), s.value(ctx, "avg_over_time(scrape_duration_seconds"+of+")")
	samples := s.value(ctx, fmt.Sprintf("scrape_samples_scraped{instance=%q}", instance))
	t.Logf("scraped each second: %.0f %% answered, in %.1f ms on average and %.1f ms at most; %.0f samples each", 100*answered, 1000*mean, 1000*slowest, samples)
	const least = 0.9
	if answered < least {
		t.Errorf("%.0f %% of the scrapes were answered, want %.0f %%", 100*answered, 100*least)
	}
}
