package workers

import "github.com/tundish-io/tundish/shaper"

// errorBytes is how much of the body of an error response is searched for a time, if no rule reads the body.
const errorBytes = 16 << 10

// Judge returns the outcome of an attempt by its response. The first rule that fits decides; without one, the statuses of its parts, the time that it
// names, and its status. A retry and a hold have the named time as their RetryAfter, from 0 to [shaper.MaxHold]. So has a job that is done if its
// response asks the scope to wait.
//
// A status outside 200 to 599 counts as a 5xx: it is no final answer of HTTP (RFC 9110, 15). A redirect is not followed: it would be a second request
// without a permit.
func (p Policy) Judge(response *Response) shaper.Outcome {
	judged := *response
	r := &judged
	r.Body = r.Text()
	if rule := p.Rules.first(r); rule != nil {
		return p.byRule(rule, r)
	}
	switch {
	case r.Broke && p.Rules.wantBody(r): // the rules may have pointed at the missing rest
		outcome := shaper.Retry(ReasonConnection, "the response broke off, and its rules want its body")
		outcome.Status, outcome.Signal = r.Status, shaper.SignalFailed
		return outcome
	case !r.OfBatch && r.isPartial():
		return p.partial(r, statusesIn(r.Body))
	}
	return p.byStatus(r)
}

// BodyBytes returns how many bytes of a response's body the policy reads, by its head and the beginning of its body.
func (p Policy) BodyBytes(response *Response) int64 {
	judged := *response
	r := &judged
	r.Body = r.Text()
	switch {
	case p.Rules.wantBody(r), r.isPartial():
		return JudgedBytes
	case r.Status >= 400 && r.hasJSON():
		return errorBytes
	}
	return 0
}
