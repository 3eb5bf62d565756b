package webhook

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// answers serves every request by writing to its bare connection until that
// fails.
func answers(t *testing.T, write func(to io.Writer) error) string {
	return listen(t, func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = write(conn)
	})
}

// forever writes s again and again, until it fails.
func forever(to io.Writer, s string) error {
	for {
		if _, err := io.WriteString(to, s); err != nil {
			return err
		}
	}
}

func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	silent := func(to io.Writer) error { // until the worker hangs up
		_, err := io.Copy(io.Discard, to.(io.Reader))
		return err
	}
	say := func(s string, then func(io.Writer) error) func(io.Writer) error {
		return func(to io.Writer) error {
			if _, err := io.WriteString(to, s); err != nil {
				return err
			}
			return then(to)
		}
	}
	const retry, done = shaper.ResultRetry, shaper.ResultDone
	for name, tt := range map[string]struct {
		write  func(io.Writer) error
		result shaper.Result
		reason string
		body   string
		silent bool // ends by the timeout only
	}{
		"no answer":   {silent, retry, workers.ReasonTimeout, "", true},
		"half a line": {say("HTTP/1.1 200", silent), retry, workers.ReasonTimeout, "", true},
		"slow body":   {say("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhal", silent), done, "", "hal", true},
		"endless body": {
			say("HTTP/1.1 500 No\r\n\r\n", func(to io.Writer) error { return forever(to, "0123456789abcde\n") }),
			retry, "http_500", strings.Repeat("0123456789abcde\n", workers.MaxSnippet/16), false,
		},
		"10 MB headers": {
			say("HTTP/1.1 200 OK\r\n", func(to io.Writer) error { return forever(to, "X-More: "+strings.Repeat("a", 1000)+"\r\n") }),
			retry, workers.ReasonConnection, "", false,
		},
		"one header that never ends": {
			say("HTTP/1.1 200 OK\r\nX: ", func(to io.Writer) error { return forever(to, strings.Repeat("a", 1000)) }),
			retry, workers.ReasonConnection, "", false,
		},
		"1xx forever": {
			func(to io.Writer) error { return forever(to, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") },
			retry, workers.ReasonConnection, "", false,
		},
		"gzip bomb is not opened": {
			say("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab", silent),
			done, "", "ab", false,
		},
		"switches protocols, unasked": {
			say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", silent),
			retry, "http_other", "", false,
		},
		"not HTTP": {say("SSH-2.0-OpenSSH_9.2\r\n", silent), retry, workers.ReasonConnection, "", false},
		"status 999": {
			say("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", silent),
			retry, "http_other", "", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t, func(c *Config) {
				if tt.silent {
					c.Timeout = 2 * time.Second // of a busy machine, which is to read half a body by then
				}
			})
			outcome := w.Deliver(t.Context(), newAttempt(answers(t, tt.write)))
			want(t, outcome, tt.result, tt.reason)
			must.Equal(t, outcome.Body, tt.body, "body")
			w.Close() // lets go of the connection, so that the server ends
		})
	}
}

func TestTLSFailures(t *testing.T) {
	t.Parallel()
	quiet := log.New(io.Discard, "", 0)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request came through") })
	unknown := httptest.NewUnstartedServer(handler)
	unknown.Config.ErrorLog = quiet
	unknown.StartTLS()
	t.Cleanup(unknown.Close)
	old := httptest.NewUnstartedServer(handler)
	old.Config.ErrorLog = quiet
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	t.Cleanup(old.Close)
	plain := httptest.NewUnstartedServer(handler)
	plain.Config.ErrorLog = quiet
	plain.Start()
	t.Cleanup(plain.Close)

	w := newWorker(t, nil)
	for name, url := range map[string]string{
		"unknown authority": unknown.URL,
		"TLS 1.1":           old.URL,
		"no TLS":            strings.Replace(plain.URL, "http:", "https:", 1),
	} {
		outcome := w.Deliver(t.Context(), newAttempt(url))
		want(t, outcome, shaper.ResultRetry, workers.ReasonTLS)
		t.Logf("%s: %s", name, outcome.Detail)
	}

	trust(w, unknown)
	want(t, w.Deliver(t.Context(), newAttempt(strings.Replace(unknown.URL, "127.0.0.1", "localhost", 1))),
		shaper.ResultRetry, workers.ReasonTLS) // the certificate is for another host
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	outcome := newWorker(t, nil).Deliver(t.Context(), newAttempt(server.URL+"/?token=canary"))
	want(t, outcome, shaper.ResultRetry, workers.ReasonConnection)
	if strings.Contains(outcome.Detail, "canary") {
		t.Errorf("the detail tells the query: %s", outcome.Detail)
	}
}
