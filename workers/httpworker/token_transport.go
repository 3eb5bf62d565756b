package httpworker

import (
	"errors"
	"io"
	"net/http"
)

// maxTokenAnswer bounds the response of an OAuth server, in bytes. Package oauth2 would build a tree of values from up to 1 MiB.
const maxTokenAnswer = 64 << 10

var errTokenAnswer = errors.New("it answers with more than 64 KiB")

// tokenTransport bounds the responses to token requests. Of an error response it reads only the beginning, so the fault can name its status.
type tokenTransport struct{ next http.RoundTripper }

func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // of the transport, whose errors are classified
	}
	body := answer.Body
	bounded := io.LimitReader(body, maxTokenAnswer)
	if answer.StatusCode/100 == 2 { //nolint:mnd // a class of statuses
		bounded = io.MultiReader(bounded, endOf{body})
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{bounded, body}
	return answer, nil
}

// endOf returns the end of a body, or an error if there are more bytes.
type endOf struct{ body io.Reader }

func (e endOf) Read(part []byte) (int, error) {
	switch n, err := io.ReadFull(e.body, part[:min(len(part), 1)]); {
	case n > 0:
		return 0, errTokenAnswer
	default:
		return 0, err //nolint:wrapcheck // of the body
	}
}
