package app

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

const alertsFile = "../../deploy/prometheus/alerts.yaml"

// described are the names of the metrics that collectors describe, whether they have a series now or not.
func described(collectors ...prometheus.Collector) map[string]bool {
	nameOf := regexp.MustCompile(`fqName: "([^"]+)"`)
	names := map[string]bool{}
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for desc := range descs {
			names[nameOf.FindStringSubmatch(desc.String())[1]] = true
		}
	}
	return names
}

// registered are all metrics of `dispatcher run` and `producer serve`.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	must.OK(t, os.WriteFile(path, []byte(reloadBefore), 0o600))
	var registries []prometheus.Collector
	for _, dispatches := range []bool{true, false} {
		src := &source{options: config.Options{Path: path}}
		cfg := must.Get(src.load(true))(t)
		// No daemon dials before it is asked for something.
		d := must.Get(newDaemon(t.Context(), cfg, src, slog.New(slog.DiscardHandler), "redis://127.0.0.1:1/0", !dispatches, dispatches))(t)
		t.Cleanup(func() {
			if err := d.close(); err != nil {
				t.Error(err)
			}
		})
		if dispatches {
			f := must.Get(d.dispatching())(t)
			t.Cleanup(f.close)
		}
		d.reloadStage()
		registries = append(registries, d.registry)
	}
	return described(registries...)
}

// expressions are the texts with PromQL, by where they stand: the file of alerts, and each query of the dashboards.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	alerts := must.Get(os.ReadFile(alertsFile))(t)
	found := map[string]string{"alerts.yaml": string(alerts)}
	dashboards, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(dashboards) < 3 {
		t.Fatal(dashboards, err)
	}
	for _, path := range dashboards {
		text := must.Get(os.ReadFile(path))(t)
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatal(path, err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				found[filepath.Base(path)+": "+panel.Title+" "+target.RefID] = target.Expr
			}
		}
	}
	return found
}

var (
	metricName = regexp.MustCompile(`\btundish_[a-z_]+`)
	partOf     = regexp.MustCompile(`_(bucket|sum|count)$`) // of a histogram
)

// base is the name under which a metric is described.
func base(name string, known map[string]bool) string {
	if known[name] {
		return name
	}
	return partOf.ReplaceAllString(name, "")
}

// A series that does not exist raises no alert, shows nothing, and says so nowhere.
func TestSignalsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := registered(t)
	texts := expressions(t)
	pages := must.Get(filepath.Glob("../../docs/*.md"))(t)
	must.Be(t, len(pages) > 15, true, "pages were found")
	for _, page := range pages {
		texts[page] = string(must.Get(os.ReadFile(page))(t))
	}
	named := 0
	for where, text := range texts {
		for _, name := range metricName.FindAllString(text, -1) {
			named++
			if strings.HasSuffix(name, "_") || name == "tundish_api" { // such as tundish_<version>, and a generated client: no metrics
				continue
			}
			if !known[base(name, known)] {
				t.Errorf("%s names %s, and no program has such a metric", where, name)
			}
		}
	}
	if named < 150 {
		t.Errorf("only %d names were found: are the files read?", named)
	}
}

// The verdict is what an operator looks for first: both dashboards for buckets show it.
func TestDashboardsShowTheVerdict(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"overview.json", "bucket.json"} {
		for _, metric := range []string{"tundish_bucket_blocked_jobs", "tundish_bucket_stalled", "tundish_bucket_finish_late"} {
			shown := false
			for where, expr := range expressions(t) {
				shown = shown || strings.HasPrefix(where, file) && slices.Contains(metricName.FindAllString(expr, -1), metric)
			}
			if !shown {
				t.Errorf("%s does not show %s", file, metric)
			}
		}
	}
}

// aggregations are the operators of PromQL around the place in a text, the innermost first: "max" and "sum" of "sum (max by (x) (HERE".
func aggregations(text string) []string {
	var found []string
	word := regexp.MustCompile(`(\w+)\s*(?:(?:by|without)\s*\([^()]*\)\s*)?$`)
	closed := 0
	for i := len(text) - 1; i >= 0; i-- {
		switch text[i] {
		case ')':
			closed++
		case '(':
			if closed > 0 {
				closed--
				continue
			}
			if m := word.FindStringSubmatch(text[:i]); m != nil && slices.Contains([]string{"sum", "max", "min", "avg", "count"}, m[1]) {
				found = append(found, m[1])
			}
		}
	}
	return found
}

// Each process tells what Redis has of every bucket, so a sum would count it once for each process. What a process counts itself is added up.
func TestSignalsAggregateOverProcesses(t *testing.T) {
	t.Parallel()
	shared, known := described(&operator.Collector{}), registered(t)
	isCounted := regexp.MustCompile(`_(total|bucket|sum|count)$`)
	judged := map[string]int{}
	for where, text := range expressions(t) {
		for _, at := range metricName.FindAllStringIndex(text, -1) {
			name := text[at[0]:at[1]]
			want := ""
			switch {
			case shared[name]:
				want = "max"
			case isCounted.MatchString(name) && known[base(name, known)]:
				want = "sum"
			default:
				continue // of one process: it is shown for each
			}
			judged[want]++
			if got := aggregations(text[:at[0]]); len(got) == 0 || got[0] != want {
				t.Errorf("%s: %s is taken with %q, want %s first", where, name, got, want)
			}
		}
	}
	if judged["max"] < 50 || judged["sum"] < 50 {
		t.Errorf("only %v metrics were judged: are the files read?", judged)
	}
}

// Jobs that were not sent are no failed attempts, and hand-overs end elsewhere. Any other outcome counts, one that is new too.
func TestSignalsCountAllOutcomes(t *testing.T) {
	t.Parallel()
	var sent []string
	for _, result := range shaper.Results() {
		if result != shaper.ResultReturned && result != shaper.ResultHandedOver {
			sent = append(sent, result.String())
		}
	}
	slices.Sort(sent)
	failed := slices.DeleteFunc(slices.Clone(sent), func(word string) bool {
		return word == shaper.ResultDone.String() || word == shaper.ResultDropped.String()
	})
	shares := 0
	for where, text := range expressions(t) {
		lists := regexp.MustCompile(`outcome=~"([^"]+)"[^/]*/ sum by \(bucket\) \(rate\(tundish_attempts_total\{outcome=~"([^"]+)"`).FindStringSubmatch(text)
		if lists == nil {
			continue
		}
		shares++
		for i, want := range [][]string{failed, sent} {
			if got := slices.Sorted(slices.Values(strings.Split(lists[i+1], "|"))); !slices.Equal(got, want) {
				t.Errorf("%s counts %q, want %q", where, got, want)
			}
		}
	}
	must.Equal(t, shares, 2, "shares of failed attempts, want that of the alert and that of the overview")
}
