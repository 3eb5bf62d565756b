package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// BatchFormat is how a request carries the jobs of a batch. Each job is an item, a JSON object with the job's id, its attempt and its
// data. The data is the payload, byte for byte, if it is JSON and the jobs' Content-Type says so, which is the default. Any other payload
// is a string in "data", or "data_base64" if it is not UTF-8. An item has traceparent and tracestate if its job has them.
type BatchFormat string

// The formats.
const (
	BatchArray  BatchFormat = "json"   // a JSON array; the default
	BatchNDJSON BatchFormat = "ndjson" // one item on each line
)

// BatchFormats lists the formats.
func BatchFormats() []BatchFormat { return []BatchFormat{BatchArray, BatchNDJSON} }

// Validate reports a format that there is not; "" is the default. The error begins with the key of the configuration.
func (f BatchFormat) Validate() error {
	if f == "" || slices.Contains(BatchFormats(), f) {
		return nil
	}
	return fmt.Errorf("batch.format: %q: want %s or %s", f, BatchArray, BatchNDJSON)
}

// How much of the answer to a batch is read: the longest id and its status need 160 bytes. The bound holds for each delivery under way.
const (
	answerBytes       = 4 << 10
	answerBytesOfItem = 512
)

// item is one job of a request.
type item struct {
	ID         string          `json:"id"`
	Attempt    int             `json:"attempt"`
	Data       json.RawMessage `json:"data,omitempty"`
	DataBase64 []byte          `json:"data_base64,omitempty"`
	Parent     string          `json:"traceparent,omitempty"`
	State      string          `json:"tracestate,omitempty"`
}

// Attempt returns the request of a batch as one attempt: its id, what its jobs agree in, the permit, and the items as its payload.
func (f BatchFormat) Attempt(batch *shaper.Batch) *shaper.Attempt {
	whole := batch.Common()
	whole.AnswerBytes = max(whole.AnswerBytes, answerBytes+answerBytesOfItem*int64(len(batch.Attempts)))
	isJSON := hasJSON(whole.Headers)
	var body bytes.Buffer
	for i, a := range batch.Attempts {
		line := itemOf(a, isJSON)
		switch {
		case f == BatchNDJSON:
		case i == 0:
			body.WriteByte('[')
		default:
			body.WriteByte(',')
		}
		line.write(&body, f == BatchNDJSON)
		if f == BatchNDJSON {
			body.WriteByte('\n')
		}
	}
	contentType := "application/x-ndjson"
	if f != BatchNDJSON {
		body.WriteByte(']')
		contentType = "application/json"
	}
	whole.Payload = body.Bytes()
	SetContentType(whole, contentType)
	return whole
}

// SetContentType replaces the Content-Type of an attempt. The attempt does not share its headers.
func SetContentType(a *shaper.Attempt, contentType string) {
	maps.DeleteFunc(a.Headers, func(name string, _ []string) bool { return textproto.CanonicalMIMEHeaderKey(name) == "Content-Type" })
	if a.Headers == nil {
		a.Headers = make(map[string][]string, 1)
	}
	a.Headers["Content-Type"] = []string{contentType}
}

func itemOf(a *shaper.Attempt, isJSON bool) item {
	trace := a.Trace()
	one := item{ID: a.ID, Attempt: a.Number, Parent: trace["traceparent"], State: trace["tracestate"]}
	switch {
	case len(a.Payload) == 0:
	case isJSON && utf8.Valid(a.Payload) && json.Valid(a.Payload):
		one.Data = a.Payload
	case utf8.Valid(a.Payload):
		one.Data, _ = json.Marshal(string(a.Payload)) // a string always marshals
	default:
		one.DataBase64 = a.Payload
	}
	return one
}

// write writes the item as JSON. Its data stays as it is, which json.Marshal would change; on one line only line breaks, which stand
// between the tokens of JSON only, become spaces.
func (i item) write(to *bytes.Buffer, onOneLine bool) {
	data := i.Data
	i.Data = nil
	head, _ := json.Marshal(i) // texts and numbers always marshal
	if len(data) == 0 {
		to.Write(head)
		return
	}
	to.Write(head[:len(head)-1])
	to.WriteString(`,"data":`)
	if onOneLine {
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	}
	to.Write(data)
	to.WriteByte('}')
}

// hasJSON reports whether payloads with these headers are JSON.
func hasJSON(headers map[string][]string) bool {
	for name, values := range headers {
		if textproto.CanonicalMIMEHeaderKey(name) == "Content-Type" && len(values) > 0 {
			return isJSONType(values[0])
		}
	}
	return true
}

func isJSONType(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// Outcomes says how a batch ended for each of its jobs, by the outcome of its request. The answer is for all jobs, unless it is a 2xx with
// JSON of the form {"results":[{"id":…,"status":…}]}. Then each status is judged by the policy, as if it were the answer to the job
// alone, but says nothing of the downstream: the request was accepted. A job that the results do not name, or name twice, is tried
// again, and so are all if the answer says that it is JSON and cannot be parsed. Faults of the answer become the batch's.
func (p Policy) Outcomes(batch *shaper.Batch, request shaper.Outcome, now time.Time) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(batch.Attempts))
	results, hasResults, err := resultsOf(request)
	for i, a := range batch.Attempts {
		outcomes[i] = request
		switch {
		case hasResults:
			outcomes[i] = p.outcomeOf(a, results[a.ID], now)
		case err != nil:
			outcomes[i] = unnamed(err.Error())
			outcomes[i].Status = request.Status
		}
		outcomes[i].Answer = answerTo(a, request.Answer, results[a.ID], outcomes[i].Status)
		delete(results, a.ID)
	}
	if hasResults && len(results) > 0 {
		err = firstOf(err, foreign(results))
	}
	batch.Fault = err
	return outcomes
}

// unnamed is the outcome of a job that was sent and that the answer does not name.
func unnamed(detail string) shaper.Outcome {
	outcome := shaper.Retry(ReasonBatchAnswer, Snippet([]byte(detail)))
	outcome.Signal = shaper.SignalAccepted
	return outcome
}

func (p Policy) outcomeOf(a *shaper.Attempt, said *itemResult, now time.Time) shaper.Outcome {
	if said == nil {
		return unnamed(fmt.Sprintf("the answer to the batch has no result for job %q: it is tried again", a.ID))
	}
	if said.fault != nil {
		return unnamed(said.fault.Error())
	}
	outcome := p.Classify(said.status, http.Header{}, now)
	outcome.Signal, outcome.Gone = shaper.SignalAccepted, false
	outcome.Body = Snippet(said.text)
	return outcome
}

// answerTo is what a job gets of the answer, if it wants some: its own result, or the whole.
func answerTo(a *shaper.Attempt, whole *shaper.Answer, said *itemResult, status int) *shaper.Answer {
	if whole == nil || a.AnswerBytes == 0 {
		return nil
	}
	own := *whole
	if said != nil && said.fault == nil {
		own.Status, own.Body, own.Cut = status, said.text, false
	}
	if int64(len(own.Body)) > a.AnswerBytes {
		own.Body, own.Cut = own.Body[:a.AnswerBytes], true
	}
	return &own
}

// itemResult is what an answer says of a job.
type itemResult struct {
	nth    int // in the answer, from 1 on
	status int
	text   []byte
	fault  error
}

// resultsOf reads the results of an answer by the ids of jobs. It returns false if the answer has none, and what is wrong with it.
func resultsOf(request shaper.Outcome) (results map[string]*itemResult, has bool, err error) {
	answer := request.Answer
	if request.Result != shaper.ResultDone || answer == nil || len(bytes.TrimSpace(answer.Body)) == 0 {
		return nil, false, nil
	}
	saysJSON := isJSONType(http.Header(answer.Headers).Get("Content-Type"))
	var form struct {
		Results *[]json.RawMessage `json:"results"`
	}
	if !json.Valid(answer.Body) {
		if !saysJSON {
			return nil, false, nil
		}
		reason := "it is not valid JSON"
		if answer.Cut {
			reason = fmt.Sprintf("it is longer than %d bytes, or it broke off", len(answer.Body))
		}
		return nil, false, fmt.Errorf("the answer to the batch cannot be read, so all its jobs are tried again: %s", reason)
	}
	if bytes.TrimSpace(answer.Body)[0] != '{' {
		return nil, false, nil // any other JSON is an answer to all
	}
	if err := json.Unmarshal(answer.Body, &form); err != nil {
		return nil, false, errNoArray
	}
	if form.Results == nil {
		return nil, false, nil
	}
	results = make(map[string]*itemResult, len(*form.Results))
	for i, text := range *form.Results {
		id, result := readItem(i+1, text)
		if id == "" {
			err = firstOf(err, result.fault)
			continue
		}
		if before := results[id]; before != nil {
			result.fault = fmt.Errorf("the answer to the batch names job %q twice, as items %d and %d of its results: it is tried again", id, before.nth, result.nth)
		}
		if result.fault != nil {
			err = firstOf(err, result.fault)
		}
		results[id] = result
	}
	return results, true, err
}

var errNoArray = errors.New(`the answer to the batch has "results" that are no array, so all its jobs are tried again: want [{"id":"…","status":200}]`)

// firstOf keeps the message short where many items have a fault.
func firstOf(before, next error) error {
	if before != nil {
		return before
	}
	return next
}

func readItem(nth int, text []byte) (id string, result *itemResult) {
	var form struct {
		ID     string `json:"id"`
		Status int    `json:"status"`
	}
	result = &itemResult{nth: nth, text: text}
	err := json.Unmarshal(text, &form)
	switch {
	case err != nil || form.ID == "":
		result.fault = fmt.Errorf(`item %d of the results in the answer to the batch has no id and status: want {"id":"…","status":200}`, nth)
		return "", result
	case form.Status < 200 || form.Status > 599:
		result.fault = fmt.Errorf("item %d of the results in the answer to the batch has status %d for job %q: want 200 to 599; the job is tried again", nth, form.Status, Snippet([]byte(form.ID)))
	}
	result.status = form.Status
	return form.ID, result
}

// foreign is the fault of results whose ids are of no job of the batch. It names the first one.
func foreign(results map[string]*itemResult) error {
	first, id := (*itemResult)(nil), ""
	for name, result := range results {
		if first == nil || result.nth < first.nth {
			first, id = result, name
		}
	}
	return fmt.Errorf("item %d of the results in the answer to the batch names job %q, which is not in the batch; %d items do so", first.nth, Snippet([]byte(id)), len(results))
}
