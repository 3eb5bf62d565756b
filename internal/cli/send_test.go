package cli_test

import "testing"

// A command line may hold any bytes, and what is sent is JSON.
func TestSendRefusesWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"url", "header", "method", "flow", "group"} {
		runArgs(t.Context(), nil, "", "producer", "send", "webhooks", "1", "--server", "127.0.0.1:1", "--"+flag, "X-A=caf\xe9").
			want(t, 2, "--"+flag+": is not UTF-8")
	}
}
