package httpapi_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// fakeOverrides are the limits of buckets.
type fakeOverrides struct {
	err        error
	overridden []string
}

func (f *fakeOverrides) OverrideLimit(_ context.Context, name string, _ admission.Patch) error {
	f.overridden = append(f.overridden, name)
	return f.err
}

func (f *fakeOverrides) ResetLimit(_ context.Context, name string) error {
	f.overridden = append(f.overridden, name)
	return f.err
}

func TestChangeOfLimitThatIsNotOne(t *testing.T) {
	t.Parallel()
	overrides := &fakeOverrides{}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: &fakeLimits{}, BucketLimits: overrides}))
	for name, test := range map[string]struct {
		body, contentType string
		status            int
		field             string
	}{
		"nothing":            {body: `{}`, field: "body"},
		"no object":          {body: `["limit"]`, field: "body"},
		"no JSON":            {body: `limit`, field: "body"},
		"another field":      {body: `{"algorithm":"fixed_window"}`, field: "algorithm"},
		"twice":              {body: `{"burst":1,"burst":2}`, field: "burst"},
		"null":               {body: `{"limit":null}`, field: "limit"},
		"a rate of no rate":  {body: `{"limit":"fast"}`, field: "limit"},
		"a rate of a number": {body: `{"limit":5}`, field: "limit"},
		"burst 0":            {body: `{"burst":0}`, field: "burst"},
		"mode of a number":   {body: `{"mode":1}`, field: "mode"},
		"tiers as a list":    {body: `{"tiers":["pro"]}`, field: "tiers"},
		"a tier of null":     {body: `{"tiers":{"pro":null}}`, field: "tiers.pro"},
		"a tier of no rate":  {body: `{"tiers":{"pro":"fast"}}`, field: "tiers.pro"},
		"a form":             {body: `limit=5`, contentType: "text/plain", status: 415},
		"too large":          {body: strings.Repeat(" ", 70_000), status: 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.status == 0 {
				test.status = 400
			}
			if test.contentType == "" {
				test.contentType = "application/merge-patch+json"
			}
			a := api.do("PATCH", "/v1/limits/a", test.body, "Content-Type", test.contentType).want(test.status, "")
			if !strings.Contains(a.text, `"field":"`+test.field+`"`) && test.field != "" {
				t.Errorf("want field %s: %s", test.field, a.text)
			}
		})
	}
	t.Cleanup(func() {
		if len(overrides.overridden) > 0 {
			t.Errorf("buckets were changed: %v", overrides.overridden)
		}
	})
}

func TestChangeOfLimitHalfDone(t *testing.T) {
	t.Parallel()
	invalid := &admission.InvalidPatchError{Limit: "a", Err: errors.Join(errors.New("burst: 0: want 1 or more"), errors.New("odd"))}
	for name, test := range map[string]struct {
		limit       string
		err         error // of the limiter
		overrideErr error // of the buckets
		status      int
		code        string
		has         string
		buckets     int // times that they were changed
	}{
		"done":            {limit: "a", status: 200, has: `"in_force"`, buckets: 1},
		"no such":         {limit: "b", status: 404, code: "unknown-limit"},
		"not valid":       {limit: "a", err: invalid, status: 400, code: "invalid", has: `{"field":"burst","reason":"0: want 1 or more"},{"field":"body","reason":"odd"}`},
		"no response":     {limit: "a", err: io.ErrUnexpectedEOF, status: 503, code: "store-unavailable", has: "is not in buckets"},
		"Redis away":      {limit: "a", err: redisconn.ErrBreakerOpen, status: 503, code: "store-unavailable", has: "nothing was stored"},
		"buckets away":    {limit: "a", overrideErr: redisconn.ErrBreakerOpen, status: 503, code: "store-unavailable", has: "is changed at the check", buckets: 1},
		"buckets refuse":  {limit: "a", overrideErr: errors.New("canary"), status: 500, code: "internal", has: "is changed at the check", buckets: 1},
		"limiter refuses": {limit: "a", err: errors.New("canary"), status: 500, code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overrides, log := &fakeOverrides{err: test.overrideErr}, &logBuffer{}
			api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
				Jobs: store(t), Limits: &fakeLimits{err: test.err}, BucketLimits: overrides, Logger: logTo(log),
			}))
			answers := []*answer{api.do("PATCH", "/v1/limits/"+test.limit, `{"mode":"shadow"}`)}
			if test.status != 400 { // which a reset has not
				answers = append(answers, api.do("DELETE", "/v1/limits/"+test.limit+"/override", ""))
			}
			for _, a := range answers {
				a.want(test.status, test.code)
				if !strings.Contains(a.text, test.has) || strings.Contains(a.text, "canary") {
					t.Errorf("want %q: %s", test.has, a.text)
				}
				if test.status == 503 {
					a.wantHeader("Retry-After", "1")
				}
			}
			if len(overrides.overridden) != len(answers)*test.buckets || test.buckets > 0 && overrides.overridden[0] != test.limit {
				t.Errorf("buckets changed: %v", overrides.overridden)
			}
			must.Equal(t, strings.Contains(log.String(), "limit changed"), (test.status == 200), "the log says\n%s", log)
		})
	}
}

func TestShowLimits(t *testing.T) {
	t.Parallel()
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: &fakeLimits{}}))
	api.do("GET", "/v1/limits/a", "").want(200, "").lacks("override")
	api.do("GET", "/v1/limits/b", "").want(404, "unknown-limit")
	away := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: &fakeLimits{err: redisconn.ErrBreakerOpen}}))
	away.do("GET", "/v1/limits", "").want(503, "store-unavailable")
	away.do("GET", "/v1/limits/a", "").want(503, "store-unavailable")
	none := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t)}))
	if a := none.do("GET", "/v1/limits", "").want(200, ""); a.text != "{\"limits\":[]}\n" {
		t.Error(a.text)
	}
	none.do("PATCH", "/v1/limits/a", `{"burst":1}`).want(404, "unknown-limit")
}

func FuzzDecodePatch(f *testing.F) {
	for _, seed := range []string{`{}`, `{"limit":"1/s","burst":2,"mode":"shadow","tiers":{"pro":"3/m"}}`, `{"tiers":null}`, `{"tiers":{"":"1/s"}}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := httpapi.DecodePatch(data); err == nil && p.IsZero() {
			t.Errorf("%q changes nothing", data)
		}
	})
}

// A header names the limits in shadow mode that would have refused, of one job and of a batch.
func TestShadowLimitsAreNamed(t *testing.T) {
	t.Parallel()
	trial := buckets(t)[1]
	for i := range trial.Limits {
		trial.Limits[i].Mode = admission.Shadow
	}
	client := must.Get(producer.New(producer.Config{Redis: connect(t, redistest.Start(t).URL()), Buckets: []shaper.Bucket{trial}, Timeout: patience}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Logger: logTo(t.Output())}))
	for i := range 5 {
		want := ""
		if i >= 3 {
			want = `"per-caller"`
		}
		a := api.do("POST", "/v1/buckets/limited/jobs", job("")).want(202, "")
		a.wantHeader("X-Tundish-Would-Refuse", want)
		a.wantHeader("RateLimit", "")
	}
	api.do("POST", "/v1/buckets/limited/jobs/batch", "["+job("")+","+job(`"cost":101`)+"]").want(200, "").
		wantHeader("X-Tundish-Would-Refuse", `"per-caller", "everybody"`)
}
