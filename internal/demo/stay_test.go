package demo

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// stayed is a demo that goes on, after its report.
type stayed struct {
	t       *testing.T
	console string // the address that it told
	stop    context.CancelFunc
	ended   chan error
	client  *http.Client
}

func stayOn(t *testing.T) *stayed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	read, write := io.Pipe()
	s := &stayed{t: t, stop: cancel, ended: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	go func() {
		err := Run(ctx, Options{Rate: 50, Seconds: 1, Factor: 2, Stay: true, Version: "v1"}, write, io.Discard)
		_ = write.Close() // of a pipe: always nil
		s.ended <- err
	}()
	address := regexp.MustCompile(`http://\S+/console/buckets/demo`)
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "--stay") {
			t.Errorf("it stays, and says how: %s", lines.Text())
		}
		if s.console = address.FindString(lines.Text()); s.console != "" {
			go func() { _, _ = io.Copy(io.Discard, read) }() // to its end
			return s
		}
	}
	t.Fatalf("it told no address: %v", <-s.ended)
	return nil
}

// get is what a page says, which may never end.
func (s *stayed) get(ctx context.Context, url string) io.Reader {
	s.t.Helper()
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))(s.t)
	response, err := s.client.Do(request)
	must.OK(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	must.Equal(s.t, response.StatusCode, http.StatusOK, "%s: %s", url, response.Status)
	return response.Body
}

// A demo that stays has a console with live traffic of producers and dispatchers, and ends without an error while somebody looks.
func TestStay(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	s := stayOn(t)
	text, err := io.ReadAll(s.get(t.Context(), s.console))
	if err != nil || !strings.Contains(string(text), "50/s") {
		t.Errorf("%s (%v):\n%s", s.console, err, text)
	}
	root := strings.TrimSuffix(s.console, "buckets/demo")
	limits, err := io.ReadAll(s.get(t.Context(), root+"limits"))
	if err != nil || !strings.Contains(string(limits), "per-caller") {
		t.Errorf("the limits (%v):\n%s", err, limits)
	}
	stream := bufio.NewScanner(s.get(context.WithoutCancel(t.Context()), root+"stream?bucket=demo"))
	arrived, departed := false, false
	for (!arrived || !departed) && stream.Scan() {
		arrived = arrived || regexp.MustCompile(`"arrived":[1-9]`).MatchString(stream.Text())
		departed = departed || regexp.MustCompile(`"departed":[1-9]`).MatchString(stream.Text())
	}
	if !arrived || !departed {
		t.Errorf("live arrivals %t, departures %t: %v", arrived, departed, stream.Err())
	}
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("interrupted while it stays: %v", err)
	}
}

// Another process may have the port of the console.
func TestStayTwice(t *testing.T) { //nolint:paralleltest // alone: it has the demo keep its pace
	a, b := stayOn(t), stayOn(t)
	if a.console == b.console {
		t.Errorf("both have %s", a.console)
	}
	for _, s := range []*stayed{a, b} {
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
}
