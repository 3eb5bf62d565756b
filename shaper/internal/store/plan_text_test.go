package store

import "testing"

// A change of a plan is shown with lengths of time as people write them, also where the text is cut off.
func TestPlanForPeople(t *testing.T) {
	t.Parallel()
	got := planForPeople([]string{`{"drain":{"cron":"0 1 * * *","for":240000000000},"calendar":[{"rate":{"count":4,"per":60000000000`})
	if want := `{"drain":{"cron":"0 1 * * *","for":"4m0s"},"calendar":[{"rate":{"count":4,"per":"1m0s"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
