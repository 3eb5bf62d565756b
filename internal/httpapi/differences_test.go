package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A bucket that obeys the configuration differs in nothing, whatever settings it has; one whose budgets an operator changed says so.
func TestNoFalseDifferences(t *testing.T) {
	t.Parallel()
	conn := connect(t, redistest.Start(t).URL())
	b := buckets(t)[0]
	b.Capacity, b.ScheduledCapacity, b.Burst, b.MaxInFlight = 77, 66, 5, 44
	for _, text := range []string{"6000 input/m", "90000 tokens/d"} {
		budget := must.Get(admission.ParseRate(text))(t)
		b.Budgets = append(b.Budgets, budget)
	}
	all := []shaper.Bucket{b}
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: all, Timeout: patience}))(t)
	must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, Payload: []byte("1"), Units: shaper.Units{"input": 1}}))(t)
	local := &http.Client{Transport: httpapi.NewLocal(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, all)}, "anna")}
	do := func(method, body string) (view opsview.Bucket) {
		t.Helper()
		r := must.Get(http.NewRequestWithContext(t.Context(), method, "http://localhost/v1/buckets/roomy", strings.NewReader(body)))(t)
		r.Header.Set("Content-Type", "application/json")
		response, err := local.Do(r)
		must.OK(t, err)
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&view); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return view
	}
	if view := do(http.MethodGet, ""); len(view.Differences) != 0 {
		t.Errorf("differences: %+v", view.Differences)
	}
	do(http.MethodPatch, `{"budgets":"7000 input/m"}`)
	list := do(http.MethodGet, "").Differences
	if len(list) != 1 || list[0].Setting != "budgets" || list[0].Configured != "6000 input/m, 90000 tokens/d" || list[0].InForce != "7000 input/m" {
		t.Errorf("%+v", list)
	}
}
