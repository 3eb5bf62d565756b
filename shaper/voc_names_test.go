package shaper

import (
	"errors"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
)

func TestNameOfAFlow(t *testing.T) {
	t.Parallel()
	who := admission.Identity{Caller: "key:billing", Headers: map[string]string{"X-Tenant": "acme corp", "X-Long": strings.Repeat("a", 257), "X-Odd": "\xff"}}
	for i, test := range []struct {
		key, defaultURL string
		job             Job
		want, field     string
	}{
		{key: FlowKeyJob, job: Job{Flow: "a b"}, want: "a b"},
		{key: FlowKeyJob, field: "flow"},
		{key: FlowKeyHost, job: Job{URL: "https://API.Example.com/x"}, want: "api.example.com"},
		{key: FlowKeyHost, job: Job{URL: "https://example.com:443/x", Flow: "not asked"}, want: "example.com"},
		{key: FlowKeyHost, job: Job{URL: "HTTP://example.com:80"}, want: "example.com"},
		{key: FlowKeyHost, job: Job{URL: "http://example.com:443/x"}, want: "example.com:443"},
		{key: FlowKeyHost, job: Job{URL: "http://[::1]:8080/x"}, want: "[::1]:8080"},
		{key: FlowKeyHost, defaultURL: "https://example.com/hook", want: "example.com"},
		{key: FlowKeyHost, defaultURL: "https://example.com/hook", job: Job{URL: "http://other/"}, want: "other"},
		{key: FlowKeyHost, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "%"}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://" + strings.Repeat("a", 257)}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://127.1/"}, field: "url"},
		{key: FlowKeyHost, job: Job{URL: "http://EXAMPLE.com.:017410/"}, want: "example.com:17410"},
		{key: FlowKeyCaller, job: Job{Identity: who}, want: "key:billing"},
		{key: FlowKeyCaller, field: "flow"},
		{key: "header:x-tenant", job: Job{Identity: who, Headers: map[string]string{"X-Tenant": "of the delivery"}}, want: "acme corp"},
		{key: "header:X-Tenant", field: "flow"},
		{key: "header:X-Long", job: Job{Identity: who}, field: "flow"},
		{key: "header:X-Odd", job: Job{Identity: who}, field: "flow"},
	} {
		got, err := (&FlowSettings{Key: test.key, DefaultURL: test.defaultURL}).NameOf(&test.job)
		var fault *FieldError
		if errors.As(err, &fault) != (test.field != "") || fault != nil && fault.Field != test.field || got != test.want {
			t.Errorf("test %d: %q, %v", i, got, err)
		}
	}
	var none *FlowSettings
	if got, err := none.NameOf(&Job{Flow: "said"}); got != "said" || err != nil {
		t.Errorf("without flows: %q, %v", got, err)
	}
}

func TestGroupSettingsAreChecked(t *testing.T) {
	t.Parallel()
	valid := grouped("b", 1)
	valid.Group.Key, valid.Group.Rate, valid.Group.Burst, valid.Group.Quotas = "header:X-Tenant", rate("5/s"), 3, []admission.Rate{rate("100/h")}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b *Bucket){
		"group.key: is missing: say what names the group of a job": func(b *Bucket) { b.Group.Key = "" },
		"group.key: \"tenant\": want job, host":                    func(b *Bucket) { b.Group.Key = "tenant" },
		"group.rate: ":                                             func(b *Bucket) { b.Group.Rate = admission.Rate{Count: -1} },
		"group.burst: 0: want 1 to":                                func(b *Bucket) { b.Group.Burst = 0 },
		"group.capacity: -1: want 0 to":                            func(b *Bucket) { b.Group.Capacity = -1 },
		"group.max_in_flight: -1: want 0 to":                       func(b *Bucket) { b.Group.MaxInFlight = -1 },
		"group.quotas: 5 windows":                                  func(b *Bucket) { b.Group.Quotas = make([]admission.Rate, MaxQuotas+1) },
		"group: is given without flows":                            func(b *Bucket) { b.Flow = nil },
		"flow.max_flows: 0: want 1 to":                             func(b *Bucket) { b.Flow.MaxFlows = 0 },
		"flow.key: is missing: say what names the flow of a job":   func(b *Bucket) { b.Flow.Key = "" },
	} {
		b := grouped("b", 1)
		change(&b)
		if err := b.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestNameOfAGroup(t *testing.T) {
	t.Parallel()
	job := &Job{Flow: "f", Group: "acme", URL: "https://Example.com/", Identity: admission.Identity{Caller: "key:b", Headers: map[string]string{"X-Tenant": "t"}}}
	for key, want := range map[string]string{FlowKeyJob: "acme", FlowKeyHost: "example.com", FlowKeyCaller: "key:b", "header:x-tenant": "t"} {
		if got, err := (&GroupSettings{Key: key}).NameOf(job); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		if key == FlowKeyHost {
			continue
		}
		if _, err := (&GroupSettings{Key: key}).NameOf(&Job{Flow: "f"}); err == nil || !strings.HasPrefix(err.Error(), "group: is ") {
			t.Errorf("%s of a job that says nothing: %v", key, err)
		}
	}
	var none *GroupSettings
	if got, err := none.NameOf(job); got != "acme" || err != nil {
		t.Errorf("without groups: %q, %v", got, err)
	}
	if err := (&Job{Group: strings.Repeat("x", MaxFlowBytes+1), Payload: []byte("x")}).Validate(100); err == nil || !strings.HasPrefix(err.Error(), "group: ") {
		t.Errorf("a long name: %v", err)
	}
}
