package outgoing

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// ResponseOf returns a response to an attempt as a policy judges it, without its body.
func ResponseOf(resp *http.Response, attempt *shaper.Attempt, req *Request) workers.Response {
	return workers.Response{
		Status: resp.StatusCode, Header: resp.Header, At: time.Now(), Number: attempt.Number, InDoubt: attempt.InDoubt && req.isKeyed(), OfBatch: req.Batch,
	}
}

// answered returns the outcome of a response, with the wanted bytes of its body. It closes the body.
func (s *Sender) answered(resp *http.Response, attempt *shaper.Attempt, req *Request) shaper.Outcome {
	response, wanted := ResponseOf(resp, attempt, req), attempt.AnswerBytes
	cut := s.read(resp, &response, wanted)
	outcome := s.config.Policy.Judge(&response)
	body, broken := response.Body, response.Broke
	outcome.Body = workers.Snippet(response.Text())
	if wanted > 0 {
		if int64(len(body)) > wanted {
			body, cut, broken = body[:wanted], true, false
		}
		outcome.Answer = &shaper.Answer{Status: resp.StatusCode, Headers: resp.Header, Body: body, Cut: cut, Broken: broken}
	}
	return outcome
}

// read reads the beginning of the body: at least wanted bytes, and enough for people and for the policy. It reads a little more so that the connection
// can be used again, and closes it. cut says that the body did not end within the bytes that were read.
func (s *Sender) read(resp *http.Response, response *workers.Response, wanted int64) (cut bool) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == http.NoBody {
		return false // the body of the former is the bare connection, which heeds no context
	}
	most := max(wanted, workers.MaxSnippet+1) // one more than a snippet has: Snippet sees the cut
	body := io.LimitReader(resp.Body, max(most, maxAnswer)+1)
	beginning, err := io.ReadAll(io.LimitReader(body, most))
	response.Body = beginning
	if more := s.config.Policy.BodyBytes(response) - most; err == nil && more > 0 && int64(len(beginning)) == most {
		buffer := bytes.NewBuffer(beginning)
		_, err = buffer.ReadFrom(io.LimitReader(body, more))
		response.Body = buffer.Bytes()
	}
	var rest int64
	if err == nil {
		rest, err = io.Copy(io.Discard, body) // the bytes so far decide: an error costs only the connection
	} else {
		response.Broke = true
	}
	return rest > 0 || err != nil
}
