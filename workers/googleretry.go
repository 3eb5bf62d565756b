package workers

import (
	"bytes"
	"strings"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// retryInfo returns the delay of the google.rpc.RetryInfo in the body of an error, such as "45.8s", "" none. Google's APIs return
// {"error":{"details":[…]}}, alone or as the first of a list.
func retryInfo(body []byte) (delay string) {
	if !bytes.Contains(body, []byte("google.rpc.RetryInfo")) {
		return ""
	}
	for _, details := range []pointer{{"error", "details", anyStep}, {"0", "error", "details", anyStep}} {
		at := jsonscan.New(body)
		eachAt(at, details, func() bool {
			var kind, named string
			jsonscan.Members(at.Value(), func(name, value []byte) {
				switch {
				case jsonscan.Is(name, "@type"):
					kind, _ = jsonscan.Text(value, maxHeaderValue)
				case jsonscan.Is(name, "retryDelay"):
					named, _ = jsonscan.Text(value, maxHeaderValue)
				}
			})
			if strings.HasSuffix(kind, "google.rpc.RetryInfo") {
				delay = named
			}
			return delay == "" && at.Err() == nil
		})
		if delay != "" {
			return delay
		}
	}
	return ""
}
