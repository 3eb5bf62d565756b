package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/npmtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// unseen is how many tokens a search or a conversation adds.
const unseen = 21_000

// clientsRig is providers behind routes, each a bucket with a budget that is never reached.
type clientsRig struct {
	*server
	providers map[string]*llmprovider.Provider
	op        *operator.Operator
}

func newClientsRig(t *testing.T) *clientsRig {
	t.Helper()
	rig := &clientsRig{providers: map[string]*llmprovider.Provider{}}
	store := redistest.Start(t)
	var buckets []shaper.Bucket
	workers, llmRoutes := map[string]shaper.Worker{}, map[string][]httpapi.RouteBucket{}
	for _, name := range []string{"model", "azure", "strict", "claude", "slow", "busy", "spare"} {
		settings := llmprovider.Settings{Unseen: unseen, IsStrict: name == "strict", ExpectedOutput: 9000, CallTime: 50 * time.Millisecond}
		config := llm.DefaultConfig(llm.OpenAI)
		if name == "claude" {
			settings.API, config = llmprovider.Anthropic, llm.DefaultConfig(llm.Anthropic)
		}
		rig.providers[name] = llmprovider.New(settings)
		api := httptest.NewServer(rig.providers[name])
		t.Cleanup(api.Close)
		config.HTTP.BaseURL, config.CountMaxTokens = api.URL, false
		config.HTTP.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		w := must.Get(llm.New(config, nil, nil))(t)
		t.Cleanup(w.Close)
		budget := must.Get(admission.ParseRate("100000000 tokens/h"))(t)
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.Budgets, b.BudgetBurst = name, rateOf(t, "1000/s"), shaper.Budgets{budget}, 100
		if name == "slow" || name == "busy" {
			b.Rate, b.Budgets = rateOf(t, "1/h"), nil
		}
		buckets, workers[name] = append(buckets, b), w
		llmRoutes[name] = []httpapi.RouteBucket{{API: &llm.Transport{Worker: w, Bucket: name, Wait: 4 * time.Hour}, Priority: shaper.PriorityHigh}}
	}
	dispatch(t, store, buckets, workers)
	client := must.Get(producer.New(producer.Config{Redis: connect(t, store.URL()), Buckets: buckets, Timeout: patience}))(t)
	leases := must.Get(dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: connect(t, store.URL()), Timeout: patience}))(t)
	permits := dispatcher.NewPermits(client, leases)
	t.Cleanup(func() { permits.Close(); leases.Close(); client.Close() })
	for _, llmRoute := range llmRoutes {
		llmRoute[0].API.Permits = permits
	}
	busy := &llmRoutes["busy"][0]
	busy.Fallback, busy.FallbackAfter, busy.FallbackModels = &llmRoutes["spare"][0], time.Second, map[string]string{"gpt-5": "claude-x", "prod": "claude-y"}
	rig.op = newOperator(t, connect(t, store.URL()), nil, buckets)
	rig.server = serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Logger: logTo(t.Output()), LLMRoutes: func(llmRoute string) []httpapi.RouteBucket { return llmRoutes[llmRoute] }}))
	return rig
}

// used awaits what a bucket is charged, and returns it with the use of each model.
func (r *clientsRig) used(t *testing.T, bucket string) (charged int64, models map[string]operator.UsageRow) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		info := must.Get(r.op.Bucket(bucket).Info(t.Context()))(t)
		if charged = info.Budgets[0].Charged; info.Unfinished == 0 {
			break
		}
	}
	usage := must.Get(r.op.Bucket(bucket).Usage(t.Context(), operator.UsageQuery{By: []operator.UsageBy{operator.UsageByModel}}))(t)
	models = map[string]operator.UsageRow{}
	for _, row := range usage.Rows {
		models[*row.Model] = row
	}
	return charged, models
}

// TestOfficialClients: what the clients of npm do, unchanged, is charged what the providers used, wherever the model, the input or the usage is.
func TestOfficialClients(t *testing.T) {
	t.Parallel()
	node := npmtest.Clients(t)
	rig := newClientsRig(t)
	out := node.Output(t, filepath.Join("testdata", "llm_clients.mjs"), "PROXY="+rig.http.URL+"/v1/proxy")
	var got struct {
		Azure, AzureStream, Polls, Background, Search, Prompts, Claude, Slow int64
		First                                                                string
		Strict                                                               []bool
		Fallback                                                             []string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v", got)
	if got.First != "queued" || got.Polls < 1 || got.Background < 9000 || got.Slow != 429 || len(got.Strict) != 3 || got.Claude < unseen {
		t.Errorf("the clients were answered %+v", got)
	}
	if want := "spare claude-x claude-x,spare claude-y claude-y,spare <nil> m"; strings.Join(got.Fallback, ",") != want {
		t.Errorf("the fallback answered %q, want %q", got.Fallback, want)
	}
	for bucket, want := range map[string]struct {
		calls int64
		model string
	}{"model": {15, "m"}, "azure": {2, "prod"}, "claude": {1, "m"}, "strict": {3, "m"}} {
		total := int64(0)
		for _, call := range rig.providers[bucket].Log() {
			total += call.Used()
		}
		charged, models := rig.used(t, bucket)
		row := models[want.model]
		t.Logf("%s: used %d, charged %d, by model %+v", bucket, total, charged, models)
		// What a background request reserved beyond its input stays; a stream that a strict provider does not count is estimated; of its refusal what was
		// reserved counts.
		if slack := total/10 + 300; charged < total-slack || charged > total+slack {
			t.Errorf("%s: charged %d of %d used", bucket, charged, total)
		}
		if len(models) != 1 || row.Calls != want.calls {
			t.Errorf("%s: the use of models is %+v, want %d calls of %s", bucket, models, want.calls, want.model)
		}
	}
	charged, models := rig.used(t, "spare")
	asked := map[string]string{}
	sum := int64(0)
	for model, row := range models {
		if row.Asked != nil {
			asked[model] = *row.Asked
		}
		sum += row.Charged
	}
	if len(models) != 3 || len(asked) != 2 || asked["claude-x"] != "gpt-5" || asked["claude-y"] != "prod" || sum != charged {
		t.Errorf("the use of the fallback is %+v, of models that were asked for %v; charged %d by rows and %d by the budget", models, asked, sum, charged)
	}
	must.Equal(t, len(rig.providers["strict"].Log()), 3, "the strict provider took calls")
}
