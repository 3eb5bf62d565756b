package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/tundish-io/tundish/shaper"
)

// ErrInvalid marks the error of a job that no request can be made of.
var ErrInvalid = errors.New("workers: the job cannot be sent")

// ClassifyError returns the outcome of an attempt by its error; part of the request may have been sent. Every temporary error is a retry and counts as a
// failure of the downstream. Faults of certificates are temporary: operators renew them. Other errors don't count against the downstream:
//   - A [LocalError] returns the job: this host could not connect, and no attempt is spent.
//   - An [ErrInvalid] is dead, and so is an address that [Guard] refused, if the URL has it. If a name resolved to it, that is a retry: DNS may change.
//   - A canceled context means that the dispatcher stopped.
//
// err must not be nil. Its text becomes the detail, with the secret parts of URLs and all IP addresses masked. Logs have the addresses.
func ClassifyError(err error) shaper.Outcome {
	private := errorDetail(err)
	detail := withoutAddresses(private, err)
	outcome := classify(err, detail)
	if detail != private {
		outcome.Private = private
	}
	return outcome
}

func classify(err error, detail string) shaper.Outcome {
	local, isLocal := errors.AsType[*LocalError](err)
	switch {
	case isLocal:
		return shaper.LocalFault(local.Reason, detail, local.Wait)
	case errors.Is(err, ErrInvalid):
		return shaper.Dead(ReasonInvalid, detail)
	case errors.Is(err, ErrBlockedAddress) && errors.Is(err, errResolved):
		return shaper.Retry(ReasonBlockedAddress, detail)
	case errors.Is(err, ErrBlockedAddress):
		return shaper.Dead(ReasonBlockedAddress, detail)
	case errors.Is(err, context.Canceled):
		return shaper.Retry(ReasonInterrupted, detail)
	}
	outcome := shaper.Retry(errorReason(err), detail)
	outcome.Signal = shaper.SignalFailed
	return outcome
}

// errorReason names the error of a downstream that failed.
func errorReason(err error) string {
	switch {
	case is[*net.DNSError](err):
		return ReasonDNS
	case isTLS(err):
		return ReasonTLS
	case isTimeout(err):
		return ReasonTimeout
	default:
		return ReasonConnection
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
