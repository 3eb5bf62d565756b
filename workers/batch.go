package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/textproto"
	"slices"
	"strings"
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

// Bounds of how much of the response to a batch is read: the longest id and its status need 160 bytes. They hold for each delivery under way.
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

// Attempt returns the request of a batch as one attempt: its id, the fields that its jobs have in common, the permit, and the items as its payload.
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

// write writes the item as JSON. Its data stays unchanged, while json.Marshal would change it. With onOneLine, line breaks, which are only between the
// tokens of JSON, become spaces.
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
