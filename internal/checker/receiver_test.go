package checker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
)

func deliver(receiver http.Handler, id, attempt string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader("payload"))
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Tundish-Attempt", attempt)
	recorder := httptest.NewRecorder()
	receiver.ServeHTTP(recorder, request)
	return recorder
}

func TestReceiverLogs(t *testing.T) {
	t.Parallel()
	var h checker.History
	h.Admitted("a", time.Now())
	receiver := &checker.Receiver{History: &h}
	for _, attempt := range []string{"1", "1", "2", "", "not a number"} {
		must.Equal(t, deliver(receiver, "a", attempt).Code, http.StatusOK, "attempt %q answers", attempt)
	}
	deliver(receiver, "", "1")
	got := h.Check()
	if got.Delivered != 6 || got.Extra != 4 || got.Repeated != 1 {
		t.Errorf("%d delivered, %d extra, %d repeated; want 6, 4, 1", got.Delivered, got.Extra, got.Repeated)
	}
	if len(got.Unexpected) != 1 || got.Unexpected[0] != "" {
		t.Errorf("unexpected = %q, want the request without an id", got.Unexpected)
	}
}

// The arrival is logged before the answer, so that a slow answer moves nothing.
func TestReceiverResponds(t *testing.T) {
	t.Parallel()
	var h checker.History
	receiver := &checker.Receiver{
		History: &h,
		Respond: func(w http.ResponseWriter, _ *http.Request, id string, attempt int) {
			must.Equal(t, h.Check().Delivered, 1, "deliveries are logged when the answer is due")
			if id != "a" || attempt != 3 {
				t.Errorf("Respond has id %q, attempt %d", id, attempt)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		},
	}
	must.Equal(t, deliver(receiver, "a", "3").Code, http.StatusTooManyRequests, "answers, want 429")
}
