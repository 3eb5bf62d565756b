package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
)

const (
	streamKeepAlive = 15 * time.Second // between two signs of life
	streamWrite     = 5 * time.Second  // for one write: a reader that is slower is dropped
	maxStreams      = 200              // of all callers: see shares
)

// StreamQuery selects the parts of a stream.
type StreamQuery struct {
	// Adds the bins of 100 ms of this bucket.
	Bucket string `json:"bucket" in:"query"`
}

// Stream sends the counts of all processes.
var Stream = &Operation[StreamQuery, *fleet.Second]{
	ID: "stream", Method: "GET", Path: "/v1/stream", Roles: []apikey.Role{apikey.RoleRead}, Events: true, Faults: []code{codeUnknownBucket, codeOverloaded},
	Commands: []string{"watch"},
	Answer:   "The events.",
	Summary:  "What all processes count, each second, as server-sent events",
	Description: `Each event has the type ` + "`second`" + `, and a ` + "`Second`" + ` as its data: the buckets of the caller's key of which something was counted in that
second, by all processes. It begins after up to six seconds, as processes learn at their next heartbeat that the bucket is being watched. A reader that is two
seconds late is cut off, and a server that stops ends the stream: ask again. A comment comes every 15 seconds. A server has 200 streams
at most. A single caller has at most half of them; two callers that want all have one third each.`,
}

// stream sends the counts of all processes, each second.
func (o *ops) stream(w http.ResponseWriter, r *http.Request) {
	bucket := r.URL.Query().Get("bucket")
	if bucket != "" { // makes all processes report this bucket in detail
		if isForeign(r, bucket) {
			newFault(codeForbidden, "the key is not for bucket %q", bucket).write(w, r)
			return
		}
		if err := o.knows(r.Context(), bucket); err != nil {
			writeFault(w, r, err, func(r *http.Request, err error) *fault {
				if errors.Is(err, shaper.ErrUnknownBucket) {
					return o.unknownBucket(r, bucket)
				}
				return o.fault(r, err)
			})
			return
		}
	}
	caller := usageOf(r).caller
	if !o.streams.take(caller, 0, 1) {
		f := newFault(codeOverloaded, "this caller has as many streams open here as it may, or the %d of this process are open: close some, or ask another process", maxStreams)
		f.RetryAfter = retryStore
		f.write(w, r)
		return
	}
	defer o.streams.give(caller, 1)
	r, ended := o.access.lasts(r)
	defer ended()
	seconds, end := o.watcher().Watch(bucket)
	defer end()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	events := eventWriter{w, http.NewResponseController(w)}
	_ = events.control.SetReadDeadline(time.Time{}) // removes the server's deadline; without one this is an error
	if events.write("retry: 2000\n\n") != nil {
		return
	}
	keepAlive := time.NewTicker(streamKeepAlive)
	defer keepAlive.Stop()
	for {
		text := ": \n\n"
		select {
		case <-r.Context().Done():
			return
		case <-o.draining.ends.Done():
			return
		case second, open := <-seconds:
			if !open {
				return // it did not read
			}
			text = eventOf(&second, r)
		case <-keepAlive.C:
		}
		if events.write(text) != nil {
			return
		}
	}
}

// eventOf is a second as an event, with the buckets of the caller's key.
func eventOf(second *fleet.Second, r *http.Request) string {
	own := *second
	own.Buckets = make(map[string]fleet.Counts, len(second.Buckets))
	for name, counts := range second.Buckets {
		if !isForeign(r, name) {
			own.Buckets[name] = counts
		}
	}
	text, err := json.Marshal(&own)
	if err != nil {
		return ": \n\n" // texts and numbers always marshal
	}
	return fmt.Sprintf("id: %d\nevent: second\ndata: %s\n\n", second.At.Unix(), text)
}

type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e eventWriter) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(streamWrite)) // as above
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}
