package codec

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestParseDownstream(t *testing.T) {
	t.Parallel()
	perSecond := func(n int64) admission.Rate {
		return admission.Rate{Count: n, Per: time.Second, Unit: admission.UnitRequests}
	}
	at := time.UnixMicro
	for text, want := range map[string]*shaper.Downstream{
		"":                                    nil,
		"-":                                   nil,
		"1,2,3":                               nil,
		"9,0,0,0,0,0,0,0,0,0,0,0,-":           nil, // a number is missing
		"-9,0,0,0,0,0,0,0,0,0,0,0,0,http_429": nil,
		"9,0,0,0,0,0,0,0,0,0,0,x,0,http_429":  nil,

		"2000,0,0,0,0,0,0,0,0,0,0,0,1500,http_429":        {HeldUntil: at(1000), Factor: 1, Breaker: shaper.BreakerClosed, Reason: "http_429", ChangedAt: at(500)},
		"2000,0,0,1,12,0,0,0,0,1900,1800,99,1500,-":       {HeldUntil: at(1000), Factor: 1, Breaker: shaper.BreakerOpen, Failures: 12, OpenSince: at(800), ChangedAt: at(500)},
		"0,0,0,2,12,0,0,0,0,1900,1800,99,0,timeout":       {Factor: 1, Breaker: shaper.BreakerHalfOpen, Failures: 12, OpenSince: at(800), Reason: "timeout"},
		"0,0,0,7,12,0,0,0,0,1900,1800,99,0,timeout":       {Factor: 1, Breaker: shaper.BreakerClosed, Failures: 12, Reason: "timeout"}, // of a later version
		"0,5000,1000000000,0,0,1,1,1,1,0,0,0,0,timeout,":  nil,
		"0,5000,1000000000,0,0,1,1,1,1,0,0,0,0,1,timeout": {Factor: 0.5, Rate: admission.Rate{Count: 5000, Per: 1000 * time.Second, Unit: admission.UnitRequests}, Breaker: shaper.BreakerClosed, Reason: "timeout"},
		"0,20000,1000000000,0,0,1,1,1,1,0,0,0,0,-":        {Factor: 1, Breaker: shaper.BreakerClosed}, // the configured rate is slower
	} {
		got := ParseDownstream(text, 1000, perSecond(10))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	// Without a rate of its own to compare with, the adaptive one is told.
	if got := ParseDownstream("0,5,1000000,0,0,1,1,1,1,0,0,0,0,-", 0, admission.Rate{}); got == nil || got.Rate != perSecond(5) || got.Factor != 1 {
		t.Errorf("%+v", got)
	}
}

func FuzzParseDownstream(f *testing.F) {
	f.Add("2000,5,1000000,1,12,3,4,5,6,1900,1800,99,1500,http_429", int64(7), int64(10))
	f.Add("9,18446744073709551615,0,1,,,,,,,,,,", int64(-7), int64(0))
	f.Fuzz(func(t *testing.T, text string, offset, count int64) {
		d := ParseDownstream(text, offset, admission.Rate{Count: count, Per: time.Second})
		if d == nil {
			return
		}
		if !(d.Factor >= 0 && d.Factor <= 1) || d.Failures < 0 || d.Rate.Count < 0 || d.Rate.Per < 0 || ReasonWord(d.Reason) != d.Reason && d.Reason != "" {
			t.Errorf("%q: %+v", text, d)
		}
		_ = fmt.Sprint(d.Text(time.Unix(0, 0)))
	})
}

func TestShownDownstreamRules(t *testing.T) {
	t.Parallel()
	b := shaper.DefaultBucket()
	b.Flow = &shaper.FlowSettings{}
	const shown = "scope flow, max_hold 1h0m0s, floor 10%, failures 10, open_for 30s, max_open 10m0s, disable_after 120h0m0s"
	must.Equal(t, ShownDownstreamRules(DownstreamRules(&b)), shown, "the defaults")
	for _, text := range []string{"", "x 1 2 3 4 5 6", "f 1 2 3", "f 1 2 3 4 5 many"} {
		must.Equal(t, ShownDownstreamRules(text), text, "a text of another form")
	}
}
