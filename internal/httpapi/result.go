package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/httpbound"
	"github.com/tundish-io/tundish/shaper"
	client "github.com/tundish-io/tundish/shaper/producer"
)

// preferredWait reads the header Prefer: wait=30, in seconds (RFC 7240, 4.3). Other preferences are ignored. 0: none.
func preferredWait(h http.Header) (time.Duration, *fault) {
	for _, line := range h.Values("Prefer") {
		for one := range strings.SplitSeq(line, ",") {
			one, _, _ = strings.Cut(one, ";") // parameters
			name, value, _ := strings.Cut(one, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0, invalid([]*shaper.FieldError{{Field: "Prefer", Reason: "want wait=30: how many seconds to wait for the result"}})
			}
			return min(time.Duration(seconds)*time.Second, httpbound.MaxWait), nil
		}
	}
	return 0, nil
}

// enqueueAndWait enqueues one job and responds with its result if it ends in time, otherwise with its state.
func (p *producer) enqueueAndWait(w http.ResponseWriter, r *http.Request, job shaper.Job, wait time.Duration) {
	receipt, awaited, err := p.jobs.Await(context.WithoutCancel(r.Context()), job)
	if err != nil {
		p.unknownOutcome(r, []shaper.Receipt{receipt}, err).write(w)
		return
	}
	defer awaited.Stop()
	if !p.tellReceipt(w, r, &receipt) {
		return
	}
	w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
	r, ended := p.access.lasts(r)
	defer ended()
	result, err := p.waitFor(w, r, awaited, wait)
	if err != nil && !isRevoked(r) {
		result, err = p.asItIs(r, &receipt)
	}
	if err == nil && usageOf(r).answer(w, http.StatusOK, result.JSON()) == nil { // otherwise the client requests the result later
		return
	}
	if result.State != "" && result.State != receipt.State {
		receipt.State, receipt.Position, receipt.ETA = result.State, 0, time.Time{}
	}
	answer := admitted(&receipt)
	writeJSON(w, http.StatusAccepted, &answer)
}

// asItIs returns how a job ended that had no result in time. The job may have no response, because it was cancelled or its response is not kept. A dead
// letter has the last response. For a job that goes on it returns an error, and the state in the result.
func (p *producer) asItIs(r *http.Request, receipt *shaper.Receipt) (shaper.JobResult, error) {
	ctx := context.WithoutCancel(r.Context())
	result, err := p.jobs.Result(ctx, receipt.Bucket, receipt.ID)
	ended := errors.Is(err, shaper.ErrNoResult)
	if !ended && !errors.Is(err, shaper.ErrNotEnded) {
		return result, err
	}
	result.Flow, result.Group = receipt.Flow, receipt.Group
	if ended && result.State != shaper.StateDead {
		return result, nil
	}
	info, err := p.jobs.Job(ctx, receipt.Bucket, receipt.ID)
	switch {
	case err == nil && info.State == shaper.StateDead:
		return info.Result(), nil
	case err == nil:
		return shaper.JobResult{State: info.State}, shaper.ErrNotEnded
	case errors.Is(err, shaper.ErrNotFound): // it was dropped, and its id is forgotten
		return result, nil
	}
	return result, err
}

// waitFor waits for a result, for a time, as long as the client is there and the server does not stop.
func (p *producer) waitFor(w http.ResponseWriter, r *http.Request, awaited *client.Awaited, wait time.Duration) (shaper.JobResult, error) {
	usageOf(r).releaseBody()
	// The server's bounds are for requests without a wait.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(wait + readTimeout)) // a connection without deadlines ends by others
	_ = control.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(p.draining.ends, cancel)()
	return awaited.Result(ctx)
}
