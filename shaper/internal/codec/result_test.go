package codec

import (
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// A result to which settle.lua has added the earlier attempts has these, and the last delivery behind them.
func TestResultsHaveTheEarlierAttempts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 14, 3, 0, 0, time.UTC)
	head, body := SealResult(&shaper.JobResult{State: shaper.StateDone, Attempts: 2, Departed: at, Took: time.Second, Answer: &shaper.Answer{Status: 204, Body: []byte("b")}})
	first := shaper.JobAttempt{At: at.Add(-time.Hour).Local(), Number: 1, Took: time.Millisecond, Status: 500, Reason: "http_500", Result: shaper.ResultRetry}
	held := shaper.JobAttempt{At: at.Add(-time.Minute).Local(), Number: 2, Status: 429, Reason: "http_429", Result: shaper.ResultHeld}
	text := strings.TrimSuffix(head, "}") + `,"tried":[` + AttemptLine(first) + "," + AttemptLine(held) + `,{"at":1,"number":9,"result":"unheard"}]}`
	r, err := OpenResult("b", "id", text+"\n"+string(body))
	must.OK(t, err)
	want := []shaper.JobAttempt{first, held, {At: at, Number: 3, Took: time.Second, Status: 204, Result: shaper.ResultDone}}
	got := r.Deliveries()
	if len(got) != len(want) || string(r.Answer.Body) != "b" {
		t.Fatalf("%+v", r)
	}
	for i, one := range got {
		if is := one; !is.At.Equal(want[i].At) || is.Number != want[i].Number || is.Took != want[i].Took || is.Status != want[i].Status || is.Reason != want[i].Reason || is.Result != want[i].Result {
			t.Errorf("delivery %d is %+v, want %+v", i, is, want[i])
		}
	}
	if r, err = OpenResult("b", "id", head+"\n"); err != nil || len(r.Earlier) != 0 || len(r.Deliveries()) != 1 || r.Deliveries()[0].Number != 2 {
		t.Errorf("without earlier ones: %+v, %v", r, err)
	}
	if d := (&shaper.JobResult{State: shaper.StateDead}).Deliveries(); len(d) != 0 {
		t.Errorf("of a job that was never sent: %+v", d)
	}
}
