package cli_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// The sink says when it is ready, logs what arrives, and ends without an error.
func TestSink(t *testing.T) {
	t.Parallel()
	address := free(t)
	sink := start(t, []string{"TUNDISH_LOG_FORMAT=json"}, "dispatcher sink --listen "+address)
	sink.ready(t, address)
	runArgs(t.Context(), nil, "", "dispatcher", "health", "--address", address).want(t, 0, "ready")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/orders", strings.NewReader(`{"order":17}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("webhook-id", "order-17")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !sink.said(`"job":"order-17"`) || !sink.said(`{\"order\":17}`) {
		t.Errorf("%s, and the log does not tell of it", answer.Status)
	}
	command(t.Context(), nil, "", "dispatcher sink --listen "+address).want(t, 1, "is taken", "--listen")
	if code := sink.end(); code != 0 {
		t.Errorf("the end: exit code %d", code)
	}
}

// free is an address of this machine on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
