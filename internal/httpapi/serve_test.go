package httpapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestListenOnWhatIsTaken(t *testing.T) {
	t.Parallel()
	first, err := httpapi.Listen(t.Context(), "127.0.0.1:0", "producer.listen")
	must.OK(t, err)
	defer first.Close()
	_, err = httpapi.Listen(t.Context(), first.Addr().String(), "producer.listen")
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), first.Addr().String()+" is taken") ||
		!strings.Contains(err.Error(), "producer.listen") {
		t.Error(err)
	}
	if _, err = httpapi.Listen(t.Context(), "nonsense", "producer.listen"); err == nil || !strings.Contains(err.Error(), "check producer.listen") {
		t.Error(err)
	}
}

// stopping starts a server with one request under way and ends its context.
// The request goes on until proceed is closed.
func stopping(t *testing.T, shutdownTimeout time.Duration) (proceed chan struct{}, served, answered chan error) {
	t.Helper()
	entered := make(chan struct{})
	proceed, served, answered = make(chan struct{}), make(chan error, 1), make(chan error, 1)
	f := &fake{bucket: buckets(t)[0], enqueue: func(context.Context) ([]shaper.Receipt, error) {
		close(entered)
		<-proceed
		return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateQueued}}, nil
	}}
	listener := must.Get(httpapi.Listen(t.Context(), "127.0.0.1:0", "producer.listen"))(t)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		served <- httpapi.Serve(ctx, listener, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f}), shutdownTimeout, nil)
	}()
	go func() {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Post("http://"+listener.Addr().String()+jobs, "application/json", strings.NewReader(job("")))
		if err == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusAccepted {
				err = errors.New(response.Status)
			}
		}
		answered <- err
	}()
	<-entered
	stop()
	return proceed, served, answered
}

func TestServeEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	proceed, served, answered := stopping(t, time.Minute)
	close(proceed)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestServeCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	proceed, served, answered := stopping(t, 0)
	if err := <-served; err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("it was answered")
	}
	close(proceed)
}

func TestServeOnABrokenListener(t *testing.T) {
	t.Parallel()
	listener, err := httpapi.Listen(t.Context(), "127.0.0.1:0", "producer.listen")
	must.OK(t, err)
	listener.Close()
	err = httpapi.Serve(t.Context(), listener, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{}}), time.Second, nil)
	if !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
