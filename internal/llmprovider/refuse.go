package llmprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// refuse writes an error in the form of the API.
func (p *Provider) refuse(w http.ResponseWriter, status int, kind, code, message string) {
	body := object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
	if p.settings.API == Anthropic {
		body = object{"type": "error", "error": object{"type": kind, "message": message}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

// exceeds returns the refusal of a call for which a limit has no room.
func (p *Provider) exceeds(m *meter, c *Call, amount int64, header http.Header) func(w http.ResponseWriter) {
	used, wait := m.sum(c.At), m.frees(c.At, amount)
	p.settings.API.setLimitHeaders(header, m, c.At)
	kind, code := string(m.Unit), "rate_limit_exceeded"
	message := fmt.Sprintf("Rate limit reached for %s on %s per %s: Limit %d, Used %d, Requested %d. Please try again in %s.",
		c.Model, m.Unit, m.Window, m.Amount, used, amount, wait.Round(time.Millisecond))
	if p.settings.API == Anthropic {
		kind = "rate_limit_error"
	}
	if amount > m.Amount { // no wait helps
		message = fmt.Sprintf("Request too large for %s on %s per %s: Limit %d, Requested %d.", c.Model, m.Unit, m.Window, m.Amount, amount)
	} else {
		header.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		if p.settings.API == OpenAI {
			header.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
		}
	}
	return func(w http.ResponseWriter) { p.refuse(w, http.StatusTooManyRequests, kind, code, message) }
}

// setLimitHeaders sets the headers that report what remains of a limit.
func (api API) setLimitHeaders(header http.Header, m *meter, now time.Time) {
	left, resets := max(m.Amount-m.sum(now), 0), m.resets(now)
	if api == Anthropic {
		prefix := map[Unit]string{Requests: "requests", Input: "input-tokens", Output: "output-tokens", Tokens: "tokens"}[m.Unit]
		header.Set("Anthropic-Ratelimit-"+prefix+"-Limit", strconv.FormatInt(m.Amount, 10))
		header.Set("Anthropic-Ratelimit-"+prefix+"-Remaining", strconv.FormatInt(left, 10))
		header.Set("Anthropic-Ratelimit-"+prefix+"-Reset", now.Add(resets).UTC().Format(time.RFC3339))
		return
	}
	header.Set("X-Ratelimit-Limit-"+string(m.Unit), strconv.FormatInt(m.Amount, 10))
	header.Set("X-Ratelimit-Remaining-"+string(m.Unit), strconv.FormatInt(left, 10))
	header.Set("X-Ratelimit-Reset-"+string(m.Unit), resets.Round(time.Millisecond).String())
}
