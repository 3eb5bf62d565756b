package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// retryInfo returns the delay of the google.rpc.RetryInfo in the body of an error, such as "45.8s", "" none. Google's APIs answer
// {"error":{"details":[…]}}, alone or as the first of a list.
func retryInfo(body []byte) (delay string) {
	if !bytes.Contains(body, []byte("google.rpc.RetryInfo")) {
		return ""
	}
	for _, details := range []pointer{{"error", "details", anyStep}, {"0", "error", "details", anyStep}} {
		r := readJSON(body)
		err := r.each(details, func() error {
			if err := r.read(); err != nil {
				return err
			}
			var info struct {
				Type  string `json:"@type"`
				Delay string `json:"retryDelay"`
			}
			if json.Unmarshal(r.value, &info) == nil && info.Delay != "" && strings.HasSuffix(info.Type, "google.rpc.RetryInfo") {
				delay = info.Delay
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return delay
		}
	}
	return ""
}
