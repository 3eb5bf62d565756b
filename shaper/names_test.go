package shaper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

func TestNameOfAFlow(t *testing.T) {
	t.Parallel()
	who := admission.Identity{Caller: "key:billing", Headers: map[string]string{"X-Tenant": "acme corp", "X-Long": strings.Repeat("a", 257), "X-Odd": "\xff"}}
	for i, test := range []struct {
		key, defaultURL string
		job             shaper.Job
		want, field     string
	}{
		{key: shaper.FlowKeyJob, job: shaper.Job{Flow: "a b"}, want: "a b"},
		{key: shaper.FlowKeyJob, field: "flow"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "https://API.Example.com/x"}, want: "api.example.com"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "https://example.com:443/x", Flow: "not asked"}, want: "example.com"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "HTTP://example.com:80"}, want: "example.com"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "http://example.com:443/x"}, want: "example.com:443"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "http://[::1]:8080/x"}, want: "[::1]:8080"},
		{key: shaper.FlowKeyHost, defaultURL: "https://example.com/hook", want: "example.com"},
		{key: shaper.FlowKeyHost, defaultURL: "https://example.com/hook", job: shaper.Job{URL: "http://other/"}, want: "other"},
		{key: shaper.FlowKeyHost, field: "url"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "%"}, field: "url"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "http://" + strings.Repeat("a", 257)}, field: "url"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "http://127.1/"}, field: "url"},
		{key: shaper.FlowKeyHost, job: shaper.Job{URL: "http://EXAMPLE.com.:017410/"}, want: "example.com:17410"},
		{key: shaper.FlowKeyCaller, job: shaper.Job{Identity: who}, want: "key:billing"},
		{key: shaper.FlowKeyCaller, field: "flow"},
		{key: "header:x-tenant", job: shaper.Job{Identity: who, Headers: map[string][]string{"X-Tenant": {"of the delivery"}}}, want: "acme corp"},
		{key: "header:X-Tenant", field: "flow"},
		{key: "header:X-Long", job: shaper.Job{Identity: who}, field: "flow"},
		{key: "header:X-Odd", job: shaper.Job{Identity: who}, field: "flow"},
	} {
		got, err := (&shaper.FlowSettings{GroupSettings: shaper.GroupSettings{Key: test.key, DefaultURL: test.defaultURL}}).NameOf(&test.job)
		var fault *shaper.FieldError
		if errors.As(err, &fault) != (test.field != "") || fault != nil && fault.Field != test.field || got != test.want {
			t.Errorf("test %d: %q, %v", i, got, err)
		}
	}
	var none *shaper.FlowSettings
	if got, err := none.NameOf(&shaper.Job{Flow: "said"}); got != "said" || err != nil {
		t.Errorf("without flows: %q, %v", got, err)
	}
}

func TestGroupSettingsAreChecked(t *testing.T) {
	t.Parallel()
	valid := rig.Grouped("b", 1)
	valid.Group.Key, valid.Group.Rate, valid.Group.Burst, valid.Group.Quotas = "header:X-Tenant", rig.Rate("5/s"), 3, []admission.Rate{rig.Rate("100/h")}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b *shaper.Bucket){
		"group.key: is missing: say what names the group of a job": func(b *shaper.Bucket) { b.Group.Key = "" },
		"group.key: \"tenant\": want job, host":                    func(b *shaper.Bucket) { b.Group.Key = "tenant" },
		"group.rate: ":                                             func(b *shaper.Bucket) { b.Group.Rate = admission.Rate{Count: -1} },
		"group.burst: 0: want 1 to":                                func(b *shaper.Bucket) { b.Group.Burst = 0 },
		"group.capacity: -1: want 0 to":                            func(b *shaper.Bucket) { b.Group.Capacity = -1 },
		"group.max_in_flight: -1: want 0 to":                       func(b *shaper.Bucket) { b.Group.MaxInFlight = -1 },
		"group.quotas: 5 windows":                                  func(b *shaper.Bucket) { b.Group.Quotas = make([]admission.Rate, shaper.MaxQuotas+1) },
		"group: is given without flows":                            func(b *shaper.Bucket) { b.Flow = nil },
		"flow.max_flows: 0: want 1 to":                             func(b *shaper.Bucket) { b.Flow.MaxFlows = 0 },
		"flow.key: is missing: say what names the flow of a job":   func(b *shaper.Bucket) { b.Flow.Key = "" },
	} {
		b := rig.Grouped("b", 1)
		change(&b)
		if err := b.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestNameOfAGroup(t *testing.T) {
	t.Parallel()
	job := &shaper.Job{Flow: "f", Group: "acme", URL: "https://Example.com/", Identity: admission.Identity{Caller: "key:b", Headers: map[string]string{"X-Tenant": "t"}}}
	for key, want := range map[string]string{shaper.FlowKeyJob: "acme", shaper.FlowKeyHost: "example.com", shaper.FlowKeyCaller: "key:b", "header:x-tenant": "t"} {
		if got, err := (&shaper.GroupSettings{Key: key}).NameOf(job); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		if key == shaper.FlowKeyHost {
			continue
		}
		if _, err := (&shaper.GroupSettings{Key: key}).NameOf(&shaper.Job{Flow: "f"}); err == nil || !strings.HasPrefix(err.Error(), "group: is ") {
			t.Errorf("%s of a job that says nothing: %v", key, err)
		}
	}
	var none *shaper.GroupSettings
	if got, err := none.NameOf(job); got != "acme" || err != nil {
		t.Errorf("without groups: %q, %v", got, err)
	}
	if err := (&shaper.Job{Group: strings.Repeat("x", shaper.MaxFlowBytes+1), Payload: []byte("x")}).Validate(100); err == nil || !strings.HasPrefix(err.Error(), "group: ") {
		t.Errorf("a long name: %v", err)
	}
}
