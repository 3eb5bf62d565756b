package codec

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/shaper"
)

// What is kept of attempts is what is read, and a line is short, whatever a worker says.
func TestAttempts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := "1783228800123456"
		var want []shaper.JobAttempt
		for range rapid.IntRange(0, 3).Draw(t, "attempts") {
			a := shaper.JobAttempt{
				At: time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "at")), Number: rapid.IntRange(1, 1<<30).Draw(t, "number"),
				Took:   time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "took")) * time.Microsecond,
				Status: rapid.IntRange(0, 599).Draw(t, "status"), Reason: rapid.StringN(0, 100, -1).Draw(t, "reason"),
				Detail: rapid.StringN(0, 400, -1).Draw(t, "detail"), Result: rapid.SampledFrom(shaper.Results()).Draw(t, "result"),
			}
			if addresses := rapid.SliceOfN(rapid.StringMatching(`[0-9a-fA-F:.%\[\]]{0,59}[0-9a-f]`), 0, maxAddresses).Draw(t, "addresses"); len(addresses) > 0 {
				a.Detail, a.Private = "dial", "dial"
				for _, address := range addresses {
					a.Detail, a.Private = a.Detail+" "+shaper.HiddenAddress+": no", a.Private+" "+address+": no"
				}
			}
			line := AttemptLine(a)
			if len(line)+len(text) > 2048 && len(want) == 0 || strings.Contains(line, "\n") {
				t.Fatalf("%d bytes: %s", len(line), line)
			}
			a = ShortAttempt(a)
			if len(a.Detail) > 200 || len(a.Reason) > 40 {
				t.Fatalf("%+v", a)
			}
			text, want = text+"\n"+line, append(want, a)
		}
		if diff := cmp.Diff(want, Attempts(text)); diff != "" {
			t.Fatal(diff)
		}
	})
	long := AttemptLine(shaper.JobAttempt{At: time.UnixMicro(1 << 52), Reason: strings.Repeat("\x00", 1000), Detail: strings.Repeat("\xff", 1000)})
	if len(long) > 2000 {
		t.Errorf("%d bytes", len(long))
	}
	hides := "(address)(address)" + strings.Repeat("(address) ", 10)
	for _, one := range [][2]string{{"read tcp (address)->(address): reset", ""}, {"dial (address)", "dial 10.0.0.7 again"}, {"dial (address)", "dial (address)"}, {"x", "y"}, {hides, strings.Repeat("1", 300)}} {
		got := Attempts("\n" + AttemptLine(shaper.JobAttempt{Detail: one[0], Private: one[1], Result: shaper.ResultRetry}))
		if len(got) != 1 || got[0].Private != "" || got[0].Detail != cut(one[0], maxDetail) {
			t.Errorf("%q: %+v", one, got)
		}
	}
	for _, text := range []string{"", "1783228800123456", "\n", "x\ny\n{}\n" + `{"at":1,"result":"none"}` + "\n[]"} {
		if got := Attempts(text); got != nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
