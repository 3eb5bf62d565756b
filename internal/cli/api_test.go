package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// No answer fills the memory of the command.
func TestAnswerIsBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"name":%q}`, strings.Repeat("x", 100))
	}))
	defer server.Close()
	for bound, code := range map[int64]int{50: exitFailed, 110: exitFailed, 111: exitDone} {
		c := &api{http: server.Client(), server: server.URL, bound: bound}
		view, err := c.bucket(t.Context(), "any")
		if codeOf(err) != code || (err == nil) != (len(view.Name) == 100) {
			t.Errorf("at most %d bytes: %q, %v", bound, view.Name, err)
		}
	}
}
