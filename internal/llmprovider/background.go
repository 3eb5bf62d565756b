package llmprovider

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A background response starts as queued, without usage. GET …/responses/{id} returns its state: after its call time it is done, with its usage.

// queue responds to a call that goes on in the background.
func (p *Provider) queue(w http.ResponseWriter, c *Call) { p.writePending(w, c, "queued") }

// responseOf returns the id of the response that a request polls.
func responseOf(r *http.Request) (id string, ok bool) {
	_, id, ok = strings.Cut(r.URL.Path, string(responses)+"/resp_")
	return id, ok && r.Method == http.MethodGet
}

// poll responds with the state of a background response.
func (p *Provider) poll(w http.ResponseWriter, name string) {
	p.mu.Lock()
	var c *Call
	if at := slices.IndexFunc(p.log, func(c *Call) bool { return c.kind == responses && c.name() == name && c.Status == http.StatusOK }); at >= 0 {
		c = p.log[at]
	}
	p.mu.Unlock()
	switch {
	case c == nil:
		p.refuse(w, http.StatusNotFound, "invalid_request_error", "not_found", "no response with the id resp_"+name)
	case time.Since(c.At) < p.settings.CallTime:
		p.writePending(w, c, "in_progress")
	default:
		p.write(w, c)
	}
}

// writePending writes a response that is not done.
func (p *Provider) writePending(w http.ResponseWriter, c *Call, status string) {
	body := response(c, "", status)
	body["usage"], body["output"], body["background"] = nil, []object{}, true
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}
