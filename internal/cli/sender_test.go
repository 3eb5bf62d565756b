package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
)

// script is a server that gives its answers in turn, the last one for ever,
// and remembers the ids that it was sent.
type script struct {
	*httptest.Server
	ids []string
}

func serveScript(t *testing.T, answers ...http.HandlerFunc) *script {
	t.Helper()
	s := &script{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var job jobRequest
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
			t.Errorf("the server was sent no job: %v", err)
		}
		s.ids = append(s.ids, job.ID)
		answers[min(len(s.ids), len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func admit(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprint(w, `{"id":"x","bucket":"b","state":"queued","position":3,"eta":"2026-01-01T00:00:03Z"}`)
}

func refuse(status, after int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(after))
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"no"}`, status, code)
	}
}

// sending makes a sender that does not really wait.
func sending(t *testing.T, s *script, wait bool) (*sender, *[]time.Duration, *strings.Builder) {
	t.Helper()
	var waits []time.Duration
	var notes strings.Builder
	sender := newSender(s.URL, "b", wait, func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) })
	sender.pause = func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}
	sender.newID = func() (string, error) { return "made", nil }
	t.Cleanup(sender.http.CloseIdleConnections)
	return sender, &waits, &notes
}

func TestSendWaitsAsLongAsTheServerSays(t *testing.T) {
	t.Parallel()
	s := serveScript(t, refuse(429, 2, "bucket-full"), refuse(429, 7, "bucket-full"), refuse(503, 1, "store-unavailable"), admit)
	sender, waits, notes := sending(t, s, true)
	answer, err := sender.send(t.Context(), jobRequest{Payload: []byte(`1`)})
	if err != nil || !answer.in() {
		t.Fatalf("send = %+v, %v", answer, err)
	}
	if want := []time.Duration{2 * time.Second, 7 * time.Second, time.Second}; !slices.Equal(*waits, want) {
		t.Errorf("waited %v, want %v", *waits, want)
	}
	if want := []string{"made", "made", "made", "made"}; !slices.Equal(s.ids, want) {
		t.Errorf("sent the ids %q, want %q: the same job each time", s.ids, want)
	}
	if want := "waiting: bucket-full: no; retry in 2s\nwaiting: store-unavailable: no; retry in 1s; whether the job is in is unknown: send it again with --id made\n"; notes.String() != want {
		t.Errorf("said %q, want %q", notes, want)
	}
}

// What a line says of an answer that does not say all.
func TestLinesOfAnswers(t *testing.T) {
	t.Parallel()
	for says, answer := range map[string]http.HandlerFunc{
		"queued    x  position 3  leaves ": admit,
		"queued    x  position 0  no time is known: `dispatcher job show b x` says why": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"id":"x","bucket":"b","state":"queued","position":0}`)
		},
		"queued    x  position 0  leaves now at the earliest (": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"id":"x","bucket":"b","state":"queued","position":0,"eta":%q}`, time.Now().UTC().Format(time.RFC3339Nano))
		},
		"refused  unknown-bucket: no at http://127.0.0.1:": refuse(404, 0, "unknown-bucket"),
	} {
		sender, _, _ := sending(t, serveScript(t, answer), false)
		answer := must.Get(sender.send(t.Context(), jobRequest{Payload: []byte(`1`)}))(t)
		if line := answer.line(time.Now()); !strings.HasPrefix(line, says) {
			t.Errorf("%q, want %q", line, says)
		}
	}
}

func TestSendDoesNotWaitForNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		wait   bool
	}{
		"not asked to":           {refuse(429, 2, "bucket-full"), false},
		"no time is said":        {refuse(429, 0, "bucket-full"), true},
		"the job will never fit": {refuse(422, 2, "cost-impossible"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveScript(t, test.answer)
			sender, waits, _ := sending(t, s, test.wait)
			answer, err := sender.send(t.Context(), jobRequest{Payload: []byte(`1`)})
			if err != nil || answer.in() || len(*waits) > 0 || len(s.ids) != 1 {
				t.Errorf("send = %+v, %v; waited %v, sent %d times", answer, err, *waits, len(s.ids))
			}
		})
	}
}

// TestSendShowsItsKey wants the key in each request, and in none of what is said.
func TestSendShowsItsKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[config.Secret]string{"": "", "tdk_hunter2": "Bearer tdk_hunter2"} {
		s := serveScript(t, func(w http.ResponseWriter, r *http.Request) {
			must.Equal(t, r.Header.Get("Authorization"), want, "Authorization is")
			refuse(401, 0, "unauthorized")(w, r)
		})
		sender, _, _ := sending(t, s, true)
		sender.key = key
		answer, err := sender.send(t.Context(), jobRequest{Payload: []byte(`1`)})
		if err != nil || !answer.endsIt() || !strings.Contains(answer.refusal(), "TUNDISH_KEY") || strings.Contains(answer.refusal(), "hunter2") {
			t.Errorf("send = %+v, %v", answer, err)
		}
	}
}

func TestAnswerExitCodes(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{202: 0, 400: 2, 401: 2, 403: 2, 404: 4, 409: 1, 413: 1, 422: 1, 429: 3, 500: 1, 503: 5} {
		must.Equal(t, (&answer{Status: status}).exitCode(), want, "exit code of %d", status)
	}
}

func TestSendToSomethingElse(t *testing.T) {
	t.Parallel()
	s := serveScript(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	sender, _, _ := sending(t, s, true)
	if _, err := sender.send(t.Context(), jobRequest{Payload: []byte(`1`)}); codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "--server") {
		t.Errorf("send = %v, want exit code %d and a word about --server", err, exitUnreachable)
	}
}

func TestSendWithoutAnAnswerTellsTheID(t *testing.T) {
	t.Parallel()
	s := serveScript(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	sender, _, _ := sending(t, s, false)
	if _, err := sender.send(t.Context(), jobRequest{Payload: []byte(`1`)}); codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "--id made") {
		t.Errorf("send = %v, want exit code %d and the id", err, exitUnreachable)
	}
}

// stuck is a reader whose last line never comes.
type stuck struct{ over chan struct{} }

func (s stuck) Read([]byte) (int, error) {
	<-s.over
	return 0, errors.New("over")
}

func TestEachLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := stuck{make(chan struct{})}
	defer close(r.over)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := eachLine(ctx, r, func([]byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("eachLine = %v, want that it was cancelled", err)
	}
}

func TestEachLine(t *testing.T) {
	t.Parallel()
	var got []string
	collect := func(text []byte) error {
		got = append(got, string(text))
		return nil
	}
	must.OK(t, eachLine(t.Context(), strings.NewReader("1\n\n  {\"a\":2} \r\n3"), collect))
	if want := []string{"1", `{"a":2}`, "3"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	if err := eachLine(t.Context(), strings.NewReader(strings.Repeat("x", maxLine+2)), collect); err == nil {
		t.Error("a line without end is no error")
	}
}
