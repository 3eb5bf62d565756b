package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/session"
)

// stream passes on the stream of the API, for the script: the session of the console is none of the API's.
func stream(v *visit) {
	target, _, err := httpapi.Stream.Request(&httpapi.StreamQuery{Bucket: v.r.FormValue("bucket")})
	if err != nil {
		v.fail(err)
		return
	}
	ctx, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	response, err := v.ask(ctx, http.MethodGet, target, "", nil)
	if err != nil {
		v.fail(err)
		return
	}
	defer response.Body.Close()
	for _, name := range []string{"Content-Type", "Cache-Control", "X-Accel-Buffering", "Retry-After"} {
		if value := response.Header.Get(name); value != "" {
			v.w.Header().Set(name, value)
		}
	}
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // as the stream of the API; a connection without deadlines has no such method
	v.w.WriteHeader(response.StatusCode)
	go v.watchLogin(ctx, cancel)
	const patience = 5 * time.Second // for one write
	part := make([]byte, 16<<10)
	for {
		n, err := response.Body.Read(part)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			if _, failed := v.w.Write(part[:n]); failed != nil || control.Flush() != nil {
				return
			}
		}
		if err != nil { // its end, or the visitor has disconnected
			return
		}
	}
}

// loginEvery is how often a stream checks whether its login is still valid.
const loginEvery = 2 * time.Second

// watchLogin calls ended when the login of the visitor has ended, or has fewer rights. While Redis does not respond, no session can be ended.
func (v *visit) watchLogin(ctx context.Context, ended func()) {
	every := time.NewTicker(loginEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		again := &visit{console: v.console, w: v.w, r: v.r.WithContext(ctx)}
		err := again.identify()
		_, isRefused := errors.AsType[*apiError](err)
		ring := v.host.Keys()
		if errors.Is(err, session.ErrNone) || isRefused || (v.visitor.Key == nil) != (len(ring) == 0) || v.visitor.Key != nil && !ring.Grants(v.visitor.Key) {
			ended()
			return
		}
	}
}

// perSecond is a rate in departures a second, 0 of a text that is none.
func perSecond(text string) float64 {
	rate, err := admission.ParseRate(text)
	if err != nil || rate.Per == 0 {
		return 0
	}
	return float64(rate.Count) / rate.Per.Seconds()
}
