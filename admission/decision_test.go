package admission_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
)

func TestTextOfRefusals(t *testing.T) {
	t.Parallel()
	a := admission.Decision{Limit: "per-caller", Rate: admission.Rate{Count: 100, Per: time.Minute}, Quota: 5}
	b := admission.Decision{Limit: "everybody", Rate: admission.Rate{Count: 9, Per: time.Second, Unit: "tokens"}, Quota: 9}
	for _, test := range []struct{ got, want string }{
		{admission.ExceededText(11*time.Second+1, a), `limit "per-caller" exceeded (100/m): retry in 12s`},
		{admission.ExceededText(0, a), `limit "per-caller" exceeded (100/m): retry in 1s`},
		{admission.ExceededText(time.Hour, a, b), `limits "per-caller" exceeded (100/m) and "everybody" exceeded (9 tokens/s): retry in 1h0m0s`},
		{admission.ImpossibleText(7, a), `cost 7 is above limit "per-caller" (at most 5 at once): lower the cost or raise the limit`},
		{admission.ImpossibleText(10, a, b, a), `cost 10 is above limits "per-caller" (at most 5 at once), "everybody" (at most 9 at once) and ` +
			`"per-caller" (at most 5 at once): lower the cost or raise the limit`},
	} {
		if test.got != test.want {
			t.Errorf("got  %s\nwant %s", test.got, test.want)
		}
	}
}
