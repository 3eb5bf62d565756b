package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// answer is the result of one job in one request.
type answer struct {
	Status    int    `json:"status"`
	Duplicate bool   `json:"duplicate"`
	Code      string `json:"code"` // of a problem (RFC 9457): why
	Detail    string `json:"detail"`
	Errors    []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`
	Seconds int64 `json:"retry_after"` // of one in a batch, in place of the header

	retryAfter time.Duration // 0 without one
	failure    string        // in place of a status: there was no response
}

// reason returns the name of the result in the report.
func (a *answer) reason() string {
	switch {
	case a.failure != "":
		return a.failure
	case a.Code != "" && a.Status == http.StatusTooManyRequests:
		return a.Code
	case a.Code != "":
		return fmt.Sprintf("%d %s", a.Status, a.Code)
	}
	return strconv.Itoa(a.Status)
}

const longestDetail = 300 // bytes that are shown

// detail adds to reason, "" if the server sent no more.
func (a *answer) detail() string {
	text := a.Detail
	if len(a.Errors) > 0 {
		faults := make([]string, len(a.Errors))
		for i, fault := range a.Errors {
			faults[i] = fault.Field + ": " + fault.Reason
		}
		text = strings.Join(faults, "; ")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > longestDetail {
		text = strings.ToValidUTF8(text[:longestDetail], "") + " …"
	}
	return text
}

// maxAnswer bounds, in bytes, how much of a response is read; the response to the largest batch is some hundred kilobytes.
const maxAnswer = 16 << 20

// readAnswers returns a result for each of the n jobs of a request. The body of a batch has one per job; any other response applies to all of them.
func readAnswers(resp *http.Response, n int, now time.Time) ([]answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	var message struct {
		answer
		Results []answer `json:"results"`
	}
	// A response that is not JSON has no code and no results: the status is enough.
	_ = json.Unmarshal(body, &message)
	after := retryAfter(resp.Header, now)
	if len(message.Results) == n {
		for i := range message.Results {
			one := &message.Results[i]
			one.retryAfter = max(after, secondsToWait(one.Seconds))
		}
		return message.Results, nil
	}
	one := message.answer
	one.Status, one.retryAfter = resp.StatusCode, after
	if n > 1 && resp.StatusCode == http.StatusOK {
		one.Status, one.failure = 0, fmt.Sprintf("the answer to a batch has %d results", len(message.Results))
	}
	answers := make([]answer, n)
	for i := range answers {
		answers[i] = one
	}
	return answers, nil
}

// maxRetryAfter bounds how long a server can make us wait at a time.
const maxRetryAfter = time.Minute

// retryAfter reads the header in both forms; 0 means that it is missing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return secondsToWait(int64(seconds))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

func secondsToWait(n int64) time.Duration {
	limit := int64(maxRetryAfter / time.Second)
	return time.Duration(min(max(n, 0), limit)) * time.Second
}

// failure describes an error in few words, without ports and ids that would make every one different.
func failure(err error) string {
	var timeout interface{ Timeout() bool }
	var wrapped *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost"
	case errors.As(err, &wrapped):
		return wrapped.Err.Error()
	}
	return err.Error()
}
