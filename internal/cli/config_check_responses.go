package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/workers"
)

// recorded is a line of the file of `dispatcher config check --responses`: a response that a receiver once sent.
type recorded struct {
	Bucket  string            `json:"bucket"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`    // JSON, or any other text as a string
	Attempt int               `json:"attempt"` // 0: the first
	Outcome string            `json:"outcome"` // done, retry, held or dead; "" any
}

// recordedView is the judgement of one such response.
type recordedView struct {
	Line int `json:"line"`
	*tryView
	Wanted string `json:"wanted,omitempty"`
}

// maxRecorded bounds a line.
const maxRecorded = 1 << 20

// recordedResponses judges the responses in a file by a configuration. differ counts those whose outcome is not the wanted one. An error names
// its line.
func recordedResponses(cfg *config.Config, name string) (views []recordedView, differ int, err error) {
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, 0, fmt.Errorf("--responses: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxRecorded)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		view, err := recordedResponse(cfg, lines.Bytes())
		if err != nil {
			return nil, 0, fmt.Errorf("--responses: line %d of %s: %w", n, name, err)
		}
		view.Line = n
		if view.Wanted != "" && view.Wanted != view.Outcome {
			differ++
		}
		views = append(views, view)
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("--responses: read %s: %w", name, err)
	}
	return views, differ, nil
}

func recordedResponse(cfg *config.Config, line []byte) (recordedView, error) {
	var r recorded
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return recordedView{}, fmt.Errorf("want {\"bucket\": …, \"status\": …, \"headers\": {…}, \"body\": …, \"outcome\": …}: %w", err)
	}
	if r.Status < 100 || r.Status > 999 {
		return recordedView{}, fmt.Errorf("status %d: want a status of HTTP, such as 403", r.Status)
	}
	response := &workers.Response{
		Status: r.Status, Header: http.Header{}, Body: r.Body, At: time.Now(), Number: max(r.Attempt, 1), InDoubt: r.Attempt > 1,
	}
	for name, value := range r.Headers {
		response.Header.Add(name, value)
	}
	var text string
	if json.Unmarshal(r.Body, &text) == nil { // of an API that does not respond with JSON
		response.Body = []byte(text)
	}
	response.Body = response.Body[:min(len(response.Body), workers.JudgedBytes)]
	view, err := judgedBy(cfg, r.Bucket, response)
	return recordedView{tryView: view, Wanted: r.Outcome}, err
}

func (v *recordedView) write(w io.Writer) {
	by := "the built-in rules"
	if v.Rule > 0 {
		by = fmt.Sprintf("rule %d (%s)", v.Rule, v.Fits)
	}
	mark := ""
	if v.Wanted != "" && v.Wanted != v.Outcome {
		mark = fmt.Sprintf(": WRONG, want %s", v.Wanted)
	}
	fmt.Fprintf(w, "line %d: bucket %q, by %s: %s%s\n", v.Line, v.Bucket, by, v.Outcome, mark)
}
