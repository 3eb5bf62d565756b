package shaper

import (
	"strings"
	"testing"
)

// JSON would make other bytes of what is not UTF-8, so it is refused, and the field is named.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*Job){
		"url":          func(j *Job) { j.URL = "https://example.com/\xe9" },
		"method":       func(j *Job) { j.Method = "P\xffST" },
		"headers.X-A":  func(j *Job) { j.Headers = map[string]string{"X-A": "caf\xe9"} },
		"headers.X-?":  func(j *Job) { j.Headers = map[string]string{"X-\xff": "a"} },
		"headers.X-B":  func(j *Job) { j.Headers = map[string]string{"X-A": "é", "X-B": "\xed\xa0\x80"} },
		"headers.X-C ": func(j *Job) { j.Headers = map[string]string{"X-C": "\xc0\x80"} },
	} {
		job := Job{Bucket: "b", Payload: []byte("1"), URL: "https://example.com/é"}
		if err := job.Validate(1); err != nil {
			t.Fatal(err)
		}
		change(&job)
		if err := job.Validate(1); err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(field)+": is not UTF-8") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", field, err)
		}
	}
	var patch FlowPatch
	if err := patch.Put(FlowURL, "https://example.com/\xe9"); err == nil || !strings.HasPrefix(err.Error(), "url: ") {
		t.Errorf("the URL of a flow: %v", err)
	}
	if err := patch.PutHeaders(map[string]string{"X-A": "caf\xe9"}); err == nil || !strings.HasPrefix(err.Error(), "headers: ") {
		t.Errorf("the headers of a flow: %v", err)
	}
	if !patch.IsZero() {
		t.Error("the patch changes something")
	}
}
