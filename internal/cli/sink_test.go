package cli_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// The sink says when it is ready, logs what arrives, and ends without an error.
func TestSink(t *testing.T) {
	t.Parallel()
	address := free(t)
	sink := start(t, []string{"TUNDISH_LOG_FORMAT=json"}, "dispatcher sink --listen "+address)
	sink.ready(t, address)
	runArgs(t.Context(), nil, "", "dispatcher", "health", "--address", address).want(t, 0, "ready")
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/orders", strings.NewReader(`{"order":17}`)))(t)
	request.Header.Set("webhook-id", "order-17")
	answer, err := http.DefaultClient.Do(request)
	must.OK(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !sink.said(`"job":"order-17"`) || !sink.said(`{\"order\":17}`) {
		t.Errorf("%s, and the log does not tell of it", answer.Status)
	}
	command(t.Context(), nil, "", "dispatcher sink --listen "+address).want(t, 1, "is taken", "--listen")
	must.Equal(t, sink.end(), 0, "the end: exit code")
}

// free is an address of this machine on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	return listener.Addr().String()
}
