package llm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func newMetrics(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := must.Get(NewMetrics(reg))(t)
	return m, reg
}

// The metrics have the tokens of each good answer in one kind, whatever an API counts, and the share of the reservation that was charged.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	for _, c := range []struct {
		bucket   string
		api      API
		answer   string
		status   int
		more     string // members of the request
		reserved shaper.Units
	}{
		{"chat", OpenAI, chatAnswer, 200, "", shaper.Units{shaper.UnitInput: 1200, shaper.UnitOutput: 1218}}, // half of it was used
		{"chat", OpenAI, responsesAnswer, 200, "", nil},                                                      // without budgets nothing is reserved
		{"chat", OpenAI, strings.Repeat("a", 10), 200, "", shaper.Units{shaper.UnitTokens: 10}},              // tells no usage
		{"chat", OpenAI, noQuota, 429, "", shaper.Units{shaper.UnitTokens: 10}},                              // is no good answer
		{"counts", OpenAI, chatAnswer, 200, `,"max_tokens":800`, shaper.Units{shaper.UnitTokens: 1000}},      // charged 2000, as the maximum counts
		{"messages", Anthropic, messagesAnswer, 200, "", shaper.Units{shaper.UnitTokens: 200}},
	} {
		p := newProvider(t)
		p.answer, p.status = c.answer, c.status
		w := must.Get(New(p.config(c.api), nil, m))(t)
		t.Cleanup(w.Close)
		a := shaper.NewAttempt(time.Now(), time.Minute, nil)
		a.Bucket, a.ID, a.URL, a.Payload, a.Reserved = c.bucket, "job-1", "/v1/x", []byte(chat(c.more)), c.reserved
		w.Deliver(t.Context(), a)
	}
	const model = "m"
	want := "# HELP tundish_llm_tokens_total Tokens of good answers: input but for what the provider read from its cache, input that it read there (cached), and output. The source is the answer (reported), or an estimate where the answer reports no usage. Where a fallback answered with another model, asked is the model of the request.\n# TYPE tundish_llm_tokens_total counter\n"
	for _, series := range []struct {
		bucket, kind, source string
		n                    int
	}{
		{"chat", "cached", "estimated", 0}, {"chat", "cached", "reported", 1024},
		{"chat", "input", "estimated", 7}, {"chat", "input", "reported", 1200 - 1024 + 36},
		{"chat", "output", "estimated", 3}, {"chat", "output", "reported", 9 + 87},
		{"counts", "cached", "reported", 1024}, {"counts", "input", "reported", 1200 - 1024}, {"counts", "output", "reported", 9},
		{"messages", "cached", "reported", 4096}, {"messages", "input", "reported", 209}, {"messages", "output", "reported", 393},
	} {
		want += fmt.Sprintf("tundish_llm_tokens_total{asked=\"\",bucket=%q,kind=%q,model=%q,source=%q} %d\n", series.bucket, series.kind, model, series.source, series.n)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "tundish_llm_tokens_total"); err != nil {
		t.Error(err)
	}
	for bucket, want := range map[string]float64{"chat": 0.5, "counts": 2, "messages": 3.01} {
		if sum, count := ratioOf(t, reg, bucket); count != 1 || sum < want-1e-9 || sum > want+1e-9 {
			t.Errorf("bucket %q: %d ratios of %g in all, want one of %g", bucket, count, sum, want)
		}
	}
	m.Keep(func(bucket string) bool { return bucket == "counts" })
	must.Equal(t, must.Get(testutil.GatherAndCount(reg))(t), 3+1, "series of one bucket")
}

// ratioOf is the sum and the count of the histogram of a bucket.
func ratioOf(t *testing.T, reg *prometheus.Registry, bucket string) (sum float64, count uint64) {
	t.Helper()
	families := must.Get(reg.Gather())(t)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil && metric.GetLabel()[0].GetValue() == bucket {
				sum, count = h.GetSampleSum(), h.GetSampleCount()
			}
		}
	}
	return sum, count
}

// Callers name models, and make no more series than of 50 of them and one of the others. Answers without usage count too.
func TestMetricsOfManyModels(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	l := &LearnedEstimates{}
	for i := range 80 {
		m.count("b", l.nameOf(fmt.Sprint("m", i), ""), "", spent{tokens: tokens{input: 1}}, nil)
	}
	must.Equal(t, must.Get(testutil.GatherAndCount(reg, "tundish_llm_tokens_total"))(t), 3*51, "series")
	others := testutil.ToFloat64(m.tokens.WithLabelValues("b", otherModels, "", kindInput, sourceEstimated))
	must.Equal(t, others, 30, "tokens of others")
}

func TestMetricsWithoutRegistry(t *testing.T) {
	t.Parallel()
	m, err := NewMetrics(nil)
	if m != nil || err != nil {
		t.Fatalf("%v, %v", m, err)
	}
	m.count("b", "m", "", spent{}, nil)
	m.Keep(func(string) bool { return false })
	reg := prometheus.NewRegistry()
	for _, wrong := range []bool{false, true} {
		if _, err := NewMetrics(reg); (err != nil) != wrong {
			t.Errorf("registered twice %t: %v", wrong, err)
		}
	}
}
