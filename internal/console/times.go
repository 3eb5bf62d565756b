package console

import (
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
)

// timeOf reads a time of a filter, as the command line does.
func timeOf(name, text string) (time.Time, error) {
	at, err := opsview.Instant(text, time.Now())
	if err != nil {
		return at, &apiError{Status: http.StatusBadRequest, Detail: name + ": " + err.Error()}
	}
	return at, nil
}

// absolute formats a time for the steps of a change: "2h" would match other dead letters in each of them.
func absolute(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
