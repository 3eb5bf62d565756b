package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// ErrInvalid marks the error of a job that no request can be made of.
var ErrInvalid = errors.New("workers: the job cannot be sent")

// Classify decides by a receiver's status how the attempt of a job ended:
//
//	2xx            done
//	3xx            dead: a redirect would be a second request without a permit
//	408, 425, 429  retry, not before retryAfter
//	410            dead: the receiver is gone
//	other 4xx      dead: the same request would fail again
//	5xx            retry, not before retryAfter
//	anything else  retry: no final HTTP answer, so treated as 5xx (RFC 9110, 15)
func Classify(status int, retryAfter time.Duration) shaper.Outcome {
	if status/100 == 2 {
		return shaper.Done(status)
	}
	outcome := shaper.Dead(statusReason(status), statusDetail(status))
	outcome.Status = status
	switch {
	case status/100 == 3:
		outcome.Reason = ReasonRedirect
	case status == http.StatusGone:
		outcome.Reason = ReasonGone
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests, status/100 != 4:
		outcome.Result = shaper.ResultRetry
		outcome.RetryAfter = max(retryAfter, 0)
	}
	return outcome
}

func statusDetail(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("the receiver answered %d %s", status, text)
	}
	return fmt.Sprintf("the receiver answered %d", status)
}

// ClassifyError decides by an error how the attempt of a job ended, of which something may have
// been sent. Any error that may pass is a retry, faults of certificates included:
// people renew them. Only an address that [Guard] refused and an [ErrInvalid]
// are dead. A canceled context means that the dispatcher stopped. err must not
// be nil. Its text becomes the detail, with the secret parts of URLs masked.
func ClassifyError(err error) shaper.Outcome {
	detail := errorDetail(err)
	switch {
	case errors.Is(err, ErrInvalid):
		return shaper.Dead(ReasonInvalid, detail)
	case errors.Is(err, ErrBlockedAddress):
		return shaper.Dead(ReasonBlockedAddress, detail)
	case errors.Is(err, context.Canceled):
		return shaper.Retry(ReasonInterrupted, detail)
	case is[*net.DNSError](err):
		return shaper.Retry(ReasonDNS, detail)
	case isTLS(err):
		return shaper.Retry(ReasonTLS, detail)
	case isTimeout(err):
		return shaper.Retry(ReasonTimeout, detail)
	default:
		return shaper.Retry(ReasonConnection, detail)
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isTLS also recognises alerts, whose type crypto/tls does not export. Only crypto/tls
// makes a net.OpError with these two operations.
func isTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") {
		return true
	}
	return is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err)
}

func errorDetail(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("%s %s: %w", e.Op, RedactURL(e.URL), e.Err)
	}
	return Snippet([]byte(err.Error()))
}
