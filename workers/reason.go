package workers

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// The reasons of outcomes, except HTTP statuses. Every reason is one of [Reasons], so that it can label a metric.
const (
	ReasonTimeout        = "timeout"         // no response within the attempt's time
	ReasonConnection     = "connection"      // not connected, cut off, or not HTTP
	ReasonDNS            = "dns"             // the host's name did not resolve
	ReasonTLS            = "tls"             // the certificate or the handshake failed
	ReasonInterrupted    = "interrupted"     // the dispatcher stopped before the response
	ReasonBlockedAddress = "blocked_address" // see Guard
	ReasonInvalid        = "invalid"         // no request can be made of the job
	ReasonRedirect       = "redirect"        // 3xx: not followed
	ReasonGone           = "gone"            // 410: the receiver wants no more
	ReasonToken          = "token"           // the OAuth server gave no token, so nothing was sent
	ReasonCredentials    = "credentials"     // 401 to credentials that have been replaced meanwhile, or that the receiver refuses to each job
	ReasonBilling        = "billing"         // the account at the receiver is out of credit, or over its spend limit
	ReasonBatchAnswer    = "batch_answer"    // the response to a batch has no result of the job, or cannot be read
	ReasonPartial        = "partial"         // the response accepts parts of the request, and refuses others
	ReasonRule           = "response_rule"   // a rule of [[buckets.responses]] decided so

	ReasonEnhanceYourCalm = "enhance_your_calm" // HTTP/2: the receiver ended the request or the connection, and asks for less

	// Of attempts that were returned: the receiver processed nothing.
	ReasonLate            = "late"             // the slot went by before the connection was ready
	ReasonShutdown        = "shutdown"         // the dispatcher stopped or the lease ended
	ReasonStaleConnection = "stale_connection" // a kept connection had died meanwhile
	ReasonUnprocessed     = "unprocessed"      // HTTP/2: the receiver reports that it did not process the request

	// Of attempts that were returned because of a fault of this host: see LocalError.
	ReasonLocalResolver    = "local_resolver"    // its DNS resolver does not work
	ReasonLocalDescriptors = "local_descriptors" // it has no free file descriptor
	ReasonLocalPorts       = "local_ports"       // it has no free local port
	ReasonLocalRoute       = "local_route"       // it has no route to the receiver
	ReasonLocalMemory      = "local_memory"      // its kernel has no memory for a connection
	ReasonLocalProxy       = "local_proxy"       // its egress proxy cannot be used
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
		ReasonBlockedAddress, ReasonInvalid, ReasonRedirect, ReasonGone, ReasonToken, ReasonCredentials, ReasonBilling, ReasonBatchAnswer, ReasonPartial, ReasonRule,
		ReasonEnhanceYourCalm, ReasonLate, ReasonShutdown, ReasonStaleConnection, ReasonUnprocessed, shaper.ReasonFlowSettings,
		"http_4xx", "http_5xx", "http_other",
	}
	for _, status := range ownReason {
		reasons = append(reasons, statusReason(status))
	}
	return append(reasons, localReasons...)
}

var localReasons = []string{ReasonLocalResolver, ReasonLocalDescriptors, ReasonLocalPorts, ReasonLocalRoute, ReasonLocalMemory, ReasonLocalProxy}

// IsLocal reports whether a reason is a fault of the host that made the attempt: see [LocalError].
func IsLocal(reason string) bool { return slices.Contains(localReasons, reason) }
