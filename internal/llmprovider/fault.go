package llmprovider

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Fault is an error that does not depend on the limits: see [Provider.Fail].
type Fault struct {
	Status int
	Header map[string]string
	Body   string // JSON
}

func (f *Fault) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	for name, value := range f.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Body)) // the client may have disconnected
}

// InsufficientQuota is OpenAI's response for an account without credit. Only its body distinguishes it from a rate limit.
func InsufficientQuota() Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.",` +
		`"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`}
}

// SpendCap is Anthropic's response for an organization that has reached its spend limit of the month.
func SpendCap() Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: `{"type":"error","error":{"type":"rate_limit_error",` +
		`"message":"You have reached your specified API usage limits.","details":{"error_code":"enforced_spend_limit_reached"}}}`}
}

// BillingError is Anthropic's response for an account without credit.
func BillingError() Fault {
	return Fault{Status: http.StatusPaymentRequired,
		Body: `{"type":"error","error":{"type":"billing_error","message":"Your credit balance is too low to access the API."}}`}
}

// Overloaded is Anthropic's 529. With a wait it names that.
func Overloaded(wait time.Duration) Fault {
	f := Fault{Status: 529, Body: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}
	if wait > 0 {
		f.Header = map[string]string{"Retry-After": strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)}
	}
	return f
}

// RetryAfterMs is a rate limit that names its wait in milliseconds, and a longer one in seconds.
func RetryAfterMs(wait time.Duration) Fault {
	return Fault{
		Status: http.StatusTooManyRequests,
		Header: map[string]string{"Retry-After-Ms": strconv.FormatInt(wait.Milliseconds(), 10), "Retry-After": "3600"},
		Body:   `{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
	}
}

// RetryInfo is a rate limit of Gemini, whose body names the wait and no header does.
func RetryInfo(wait time.Duration) Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: fmt.Sprintf(`[{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED",`+
		`"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute"}]},`+
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%ss"}]}}]`, strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))}
}
