package opsview

import (
	"encoding/json"
	"testing"

	"github.com/tundish-io/tundish/admission"
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
