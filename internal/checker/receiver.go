package checker

import (
	"cmp"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Headers by which a delivery names its job and its attempt.
const (
	IDHeader      = "webhook-id"
	KeyHeader     = "idempotency-key" // the same of a call of an API
	AttemptHeader = "tundish-attempt"
)

// Receiver is a downstream: a handler that logs every request into History at
// the instant of its arrival. A request without an id is logged with the id "",
// which makes it unexpected.
type Receiver struct {
	History *History

	// Respond writes the response. Nil reads the body and responds with 200.
	Respond func(w http.ResponseWriter, r *http.Request, id string, attempt int)
}

func (rc *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	id := cmp.Or(r.Header.Get(IDHeader), r.Header.Get(KeyHeader))
	attempt, err := strconv.Atoi(r.Header.Get(AttemptHeader))
	if err != nil {
		attempt = 0
	}
	rc.History.Delivered(id, attempt, at)
	if rc.Respond != nil {
		rc.Respond(w, r, id, attempt)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
