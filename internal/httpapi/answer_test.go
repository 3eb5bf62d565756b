package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// JSON cannot hold a year of five digits. The last night of 9999 west of Greenwich is in
// one, and the ids of the jobs that got in must be answered all the same.
func TestAnswerOfTheYear10000(t *testing.T) {
	t.Parallel()
	at := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &fake{
		enqueue: func(context.Context) ([]shaper.Receipt, error) {
			return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateScheduled, ETA: at}}, nil
		},
		info: shaper.JobInfo{ID: "a", Bucket: "roomy", State: shaper.StateScheduled, Enqueued: time.Now(), Due: at},
	}
	api := serveFake(t, f, &logBuffer{})
	a := api.do("POST", jobs, job("")).want(http.StatusAccepted, "")
	a.has("id", "a")
	a.lacks("eta")
	must.Equal(t, api.do("POST", jobs+"/batch", "["+job("")+"]").want(http.StatusOK, "").statuses(), "202", "the batch was answered")
	api.do("GET", jobs+"/a", "").want(http.StatusOK, "").has("id", "a")
}

// The status is written after the body is known.
func TestNoAnswerWithoutItsBody(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httpapi.WriteJSON(w, http.StatusAccepted, map[string]any{"at": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != "application/problem+json" || w.Body.Len() == 0 {
		t.Errorf("status %d, %s: %q", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
}
