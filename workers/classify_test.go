package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// The rule, told a second time for every status there can be.
func TestClassifyEveryStatus(t *testing.T) {
	t.Parallel()
	for status := range 1000 {
		got := Classify(status, time.Minute)
		want := shaper.ResultRetry
		switch {
		case status >= 200 && status <= 299:
			want = shaper.ResultDone
		case status >= 300 && status <= 399:
			want = shaper.ResultDead
		case status == 408, status == 425, status == 429:
			want = shaper.ResultRetry
		case status >= 400 && status <= 499:
			want = shaper.ResultDead
		}
		if got.Result != want || got.Status != status {
			t.Errorf("Classify(%d) = %+v, want %s", status, got, want)
		}
		if wantWait := want == shaper.ResultRetry; (got.RetryAfter == time.Minute) != wantWait {
			t.Errorf("Classify(%d): retry after %s", status, got.RetryAfter)
		}
		if (want == shaper.ResultDone) != (got.Reason == "") {
			t.Errorf("Classify(%d): reason %q", status, got.Reason)
		}
		if got.Reason != "" && !slices.Contains(Reasons(), got.Reason) {
			t.Errorf("Classify(%d): reason %q is not in the list", status, got.Reason)
		}
	}
}

func TestClassifyReasons(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		0: "http_other", 101: "http_other", 301: "redirect", 304: "redirect", 400: "http_400", 410: "gone",
		418: "http_4xx", 429: "http_429", 500: "http_500", 503: "http_503", 520: "http_5xx", 999: "http_other",
	} {
		if got := Classify(status, 0); got.Reason != want || !strings.Contains(got.Detail, fmt.Sprint(status)) {
			t.Errorf("Classify(%d) = %+v, want reason %q and the status in the detail", status, got, want)
		}
	}
	if got := Classify(503, -time.Hour).RetryAfter; got != 0 {
		t.Errorf("a negative wait became %s", got)
	}
}

func TestReasonsAreDistinctWords(t *testing.T) {
	t.Parallel()
	reasons := Reasons()
	if len(reasons) > 40 {
		t.Errorf("%d reasons: too many for a label", len(reasons))
	}
	slices.Sort(reasons)
	if len(slices.Compact(slices.Clone(reasons))) != len(reasons) {
		t.Errorf("a reason stands twice: %q", reasons)
	}
}

func TestClassifyError(t *testing.T) {
	t.Parallel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	const retry, dead = shaper.ResultRetry, shaper.ResultDead
	for name, tt := range map[string]struct {
		err    error
		result shaper.Result
		reason string
	}{
		"deadline":        {context.DeadlineExceeded, retry, ReasonTimeout},
		"socket deadline": {dial(os.ErrDeadlineExceeded), retry, ReasonTimeout},
		"tcp timeout":     {dial(os.NewSyscallError("connect", syscall.ETIMEDOUT)), retry, ReasonTimeout},
		"refused":         {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), retry, ReasonConnection},
		"cut off":         {io.ErrUnexpectedEOF, retry, ReasonConnection},
		"unknown":         {errors.New("malformed HTTP response"), retry, ReasonConnection},
		"no such host":    {dial(&net.DNSError{Err: "no such host", IsNotFound: true}), retry, ReasonDNS},
		"dns timeout":     {dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), retry, ReasonDNS},
		"certificate":     {&tls.CertificateVerificationError{Err: errors.New("expired")}, retry, ReasonTLS},
		"not tls":         {tls.RecordHeaderError{Msg: "first record does not look like TLS"}, retry, ReasonTLS},
		"alert":           {&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, retry, ReasonTLS},
		"shutdown":        {fmt.Errorf("send: %w", context.Canceled), retry, ReasonInterrupted},
		"blocked":         {dial(fmt.Errorf("%w: 10.0.0.1:80", ErrBlockedAddress)), dead, ReasonBlockedAddress},
		"invalid":         {fmt.Errorf("%w: url: is not a URL", ErrInvalid), dead, ReasonInvalid},
	} {
		got := ClassifyError(tt.err)
		if got.Result != tt.result || got.Reason != tt.reason || got.Detail == "" {
			t.Errorf("%s: %+v, want %s %s", name, got, tt.result, tt.reason)
		}
		if !slices.Contains(Reasons(), got.Reason) {
			t.Errorf("%s: reason %q is not in the list", name, got.Reason)
		}
	}
}

func TestErrorDetailHoldsNoCredentials(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("deliver: %w", &url.Error{
		Op:  "Post",
		URL: "https://user:canary@hooks.example/services/canary?token=canary",
		Err: errors.New("connection reset\x1b[31m by peer"),
	})
	got := ClassifyError(err).Detail
	if want := "Post https://hooks.example: connection reset [31m by peer"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
}
