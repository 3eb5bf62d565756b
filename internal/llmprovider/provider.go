package llmprovider

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Provider is a provider of language models. It is safe for concurrent use. See [New].
type Provider struct {
	settings Settings

	mu          sync.Mutex
	meters      []*meter
	fault       *Fault
	streamFault StreamFault
	log         Log
}

// New makes a provider without any charges.
func New(settings Settings) *Provider {
	settings.API = cmp.Or(settings.API, OpenAI)
	p := &Provider{settings: settings}
	for _, limit := range settings.Limits {
		p.meters = append(p.meters, &meter{Limit: limit})
	}
	return p
}

// Fail makes every call from now on get a fault, until [Provider.Heal].
func (p *Provider) Fail(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = &f
}

// Heal ends the fault.
func (p *Provider) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = nil
}

// Log returns the calls so far.
func (p *Provider) Log() Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := make(Log, len(p.log))
	for i, c := range p.log {
		own := *c
		calls[i] = &own
	}
	return calls
}

// ServeHTTP responds to a call after its time, or with an error at once.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, ok := responseOf(r); ok {
		p.poll(w, id)
		return
	}
	kind := p.settings.API.kindOf(r.URL.Path)
	if r.Method != http.MethodPost || kind == "" {
		p.refuse(w, http.StatusNotFound, "invalid_request_error", "unknown_url", fmt.Sprintf("unknown request URL: %s %s", r.Method, r.URL.Path))
		return
	}
	said, err := read(r.Body, kind, deploymentOf(r.URL.Path))
	if err != nil {
		p.refuse(w, http.StatusBadRequest, "invalid_request_error", "invalid_request", err.Error())
		return
	}
	if p.settings.IsStrict && said.options {
		p.refuse(w, http.StatusBadRequest, "invalid_request_error", "unknown_parameter", "Unrecognized request argument supplied: stream_options")
		return
	}
	call, answer := p.admit(r.Header.Get("Idempotency-Key"), said, w.Header())
	if answer != nil {
		answer(w)
		return
	}
	if said.background {
		p.queue(w, call)
		return
	}
	if said.streams {
		p.stream(w, r, call)
		return
	}
	select {
	case <-time.After(p.settings.CallTime):
		p.write(w, call)
	case <-r.Context().Done():
	}
}

// admit logs a call and charges it. It sets the headers of the response, and returns the function that writes the refusal, nil if nothing refuses the
// call.
//
// The time of arrival is read under the lock: the calls in the log are in the order of their times.
func (p *Provider) admit(id string, r request, header http.Header) (*Call, func(w http.ResponseWriter)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settings.Input != nil {
		r.input = p.settings.Input(id)
	}
	if r.refers {
		r.input += p.settings.Unseen
	}
	c := &Call{At: time.Now(), number: len(p.log) + 1, ID: id, Model: r.model, Input: r.input, MaxOutput: r.maxOutput, Output: p.settings.output(id, r), kind: r.kind, asksUsage: r.asksUsage}
	p.log = append(p.log, c)
	if p.fault != nil {
		c.Status = p.fault.Status
		return c, p.fault.write
	}
	charges := p.settings.charges(c)
	now := charges[0]
	for _, m := range p.meters {
		if m.sum(c.At)+now.Of(m.Unit) > m.Amount {
			c.Status = http.StatusTooManyRequests
			return c, p.exceeds(m, c, now.Of(m.Unit), header)
		}
	}
	c.Status, c.Charges = http.StatusOK, charges
	for _, m := range p.meters {
		m.charges = append(m.charges, charges...)
		p.settings.API.setLimitHeaders(header, m, c.At)
	}
	return c, nil
}

// pieces is the number of parts of an output that counts as it is produced.
const pieces = 20

// charges returns the charges of a call, the first one at its arrival.
func (s *Settings) charges(c *Call) []Charge {
	first := Charge{At: c.At, Requests: 1, Input: c.Input}
	if s.API == OpenAI {
		first.Output = cmp.Or(c.MaxOutput, c.Output)
		return []Charge{first}
	}
	all := []Charge{first}
	for n := int64(1); n <= pieces; n++ {
		part := c.Output*n/pieces - c.Output*(n-1)/pieces
		all = append(all, Charge{At: c.At.Add(s.CallTime * time.Duration(n) / pieces), Output: part})
	}
	return all
}
