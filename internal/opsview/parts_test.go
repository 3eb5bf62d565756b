package opsview

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A flow shows the group that it is in, what it sends by its origin and its number only, and a group neither.
func TestViewsOfFlowsAndGroups(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	info := operator.PartInfo{
		Bucket: "b", FlowNumbers: operator.FlowNumbers{Waiting: 2, InFlight: 1}, Known: true,
		Own: shaper.OwnFlow{
			OwnBounds: shaper.OwnBounds{Rate: admission.Rate{Count: 5, Per: 1e9, Unit: admission.UnitRequests}, Capacity: &zero},
			URL:       "https://a.example/token", Secrets: []string{"whsec_x"},
		},
	}
	for _, test := range []struct {
		view View
		want string
	}{
		{FlowOf(&operator.FlowInfo{PartInfo: info, Flow: "f", Group: "g"}), `{"bucket":"b","group":"g","flow":"f","waiting":2,"in_flight":1,` +
			`"settings":{"rate":"5/s","capacity":0,"url":"https://a.example/***","secrets_count":1,"secret_fingerprints":["` + shaper.SecretFingerprint("whsec_x") + `"]}}`},
		{FlowOf(&operator.FlowInfo{Flow: ""}), `{"bucket":"","flow":"","waiting":0,"in_flight":0,"unknown":true,"settings":{}}`},
		{GroupOf(&operator.GroupInfo{PartInfo: info, Group: "g"}), `{"bucket":"b","group":"g","waiting":2,"in_flight":1,"settings":{"rate":"5/s","capacity":0}}`},
	} {
		if got, err := json.Marshal(test.view); err != nil || string(got) != test.want {
			t.Errorf("shown is %s, %v, want %s", got, err, test.want)
		}
	}
}

// A part shows its budgets, and the one that holds it longest.
func TestBudgetsOfParts(t *testing.T) {
	t.Parallel()
	frees := time.Date(2026, 11, 30, 14, 3, 0, 0, time.UTC)
	info := operator.PartInfo{Bucket: "b", Known: true, Budgets: []shaper.BudgetUse{
		{Budget: admission.Rate{Count: 4000, Per: 24 * time.Hour, Unit: "tokens"}, Charged: 4000, Open: 10, Frees: frees},
		{Budget: admission.Rate{Count: 900, Per: time.Minute, Unit: "tokens"}, Charged: 10, Frees: frees.Add(-time.Hour)},
	}}
	for _, view := range []View{FlowOf(&operator.FlowInfo{PartInfo: info, Flow: "f"}), GroupOf(&operator.GroupInfo{PartInfo: info, Group: "g"})} {
		got, err := json.Marshal(view)
		if want := `"budgets":[{"budget":"4000 tokens/d","charged":4000,"open":10,"free":0,"held_until":"2026-11-30T14:03:00Z"},{"budget":"900 tokens/m",`; err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
		if note, want := view.Alike().AllowanceNote(), "its budget of 4000 tokens/d lets the next job go at 2026-11-30T14:03:00Z (free in its window: 0)"; note != want {
			t.Errorf("%q, want %q", note, want)
		}
	}
	must.Equal(t, FlowOf(&operator.FlowInfo{}).AllowanceNote(), "", "without budgets")
}
