package workers

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// The reasons of outcomes, apart from those of HTTP statuses. Every
// reason is one of [Reasons], so that it can label a metric.
const (
	ReasonTimeout        = "timeout"         // no answer within the attempt's time
	ReasonConnection     = "connection"      // not connected, cut off, or not HTTP
	ReasonDNS            = "dns"             // the host's name did not resolve
	ReasonTLS            = "tls"             // the certificate or the handshake failed
	ReasonInterrupted    = "interrupted"     // the dispatcher stopped with the answer still due
	ReasonBlockedAddress = "blocked_address" // see Guard
	ReasonInvalid        = "invalid"         // no request can be made of the job
	ReasonRedirect       = "redirect"        // 3xx: not followed
	ReasonGone           = "gone"            // 410: the receiver wants no more
	ReasonToken          = "token"           // the OAuth server gave no token, so nothing was sent
	ReasonCredentials    = "credentials"     // 401 to credentials that have been replaced meanwhile
	ReasonBilling        = "billing"         // the account at the receiver is out of credit, or over its spend limit
	ReasonBatchAnswer    = "batch_answer"    // the answer to a batch says nothing of the job, or cannot be read

	// Of attempts that were returned: nothing was sent.
	ReasonLate            = "late"             // the slot went by before the connection was ready
	ReasonShutdown        = "shutdown"         // the dispatcher stopped or the lease ended
	ReasonStaleConnection = "stale_connection" // a kept connection had died meanwhile
)

// ownReason are the statuses with a reason of their own. The others share the reason
// of their class, which bounds the labels that a receiver can add to the metrics.
var ownReason = []int{400, 401, 403, 404, 408, 409, 413, 415, 422, 425, 429, 500, 502, 503, 504, statusOverloaded}

// statusReason names a status that is not 2xx.
func statusReason(status int) string {
	switch class := status / 100; {
	case class == 3:
		return ReasonRedirect
	case status == http.StatusGone:
		return ReasonGone
	case slices.Contains(ownReason, status):
		return fmt.Sprintf("http_%d", status)
	case class == 4 || class == 5:
		return fmt.Sprintf("http_%dxx", class)
	default:
		return "http_other"
	}
}

// Reasons returns every reason there is, for metrics to start at 0.
func Reasons() []string {
	reasons := []string{
		ReasonTimeout, ReasonConnection, ReasonDNS, ReasonTLS, ReasonInterrupted,
		ReasonBlockedAddress, ReasonInvalid, ReasonRedirect, ReasonGone, ReasonToken, ReasonCredentials, ReasonBilling, ReasonBatchAnswer,
		ReasonLate, ReasonShutdown, ReasonStaleConnection, shaper.ReasonFlowSettings,
		"http_4xx", "http_5xx", "http_other",
	}
	for _, status := range ownReason {
		reasons = append(reasons, statusReason(status))
	}
	return reasons
}
