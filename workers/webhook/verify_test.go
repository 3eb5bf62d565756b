package webhook

import (
	"strings"
	"testing"
	"time"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	signed := time.Unix(1614265330, 0)
	body := []byte(`{"n":1}`)
	a, b := sign(t, secretA, "id", signed, body), sign(t, secretB, "id", signed, body)
	for name, tt := range map[string]struct {
		id, signature, body string
		later, tolerance    time.Duration
		secret              int
		fault               string
	}{
		"the first":             {"id", a, `{"n":1}`, time.Minute, 5 * time.Minute, 0, ""},
		"the second":            {"id", b, `{"n":1}`, time.Minute, 5 * time.Minute, 1, ""},
		"both":                  {"id", b + " " + a, `{"n":1}`, time.Minute, 5 * time.Minute, 0, ""},
		"behind others":         {"id", "v1a,AAAA v1,AAAA  " + b, `{"n":1}`, 0, time.Second, 1, ""},
		"at the bound":          {"id", a, `{"n":1}`, 5 * time.Minute, 5 * time.Minute, 0, ""},
		"too old":               {"id", a, `{"n":1}`, 5*time.Minute + time.Second, 5 * time.Minute, 0, "too old: it is 5m1s back, and at most 5m0s"},
		"too new":               {"id", a, `{"n":1}`, -6 * time.Minute, 5 * time.Minute, 0, "too new: it is 6m0s ahead"},
		"of any age":            {"id", a, `{"n":1}`, 1e6 * time.Hour, 0, 0, ""},
		"another id":            {"ID", a, `{"n":1}`, 0, 0, -1, "no secret matches: another secret signed, or id"},
		"another body":          {"id", a, `{"n": 1}`, 0, 0, -1, "no secret matches: "},
		"a newline":             {"id", a, "{\"n\":1}\r\n", 0, 0, -1, "one does without the newline"},
		"old, and another body": {"id", a, "", time.Hour, time.Minute, -1, "too old"},
		"another version":       {"id", "v1a,x v1a,y", `{"n":1}`, 0, 0, -1, `no signature of version v1: it has "v1a"`},
		"no version":            {"id", strings.TrimPrefix(a, "v1,"), `{"n":1}`, 0, 0, -1, "no signature of version v1"},
		"nothing":               {"id", " ", `{"n":1}`, 0, 0, -1, "no signature of version v1: it is empty"},
		"cut short":             {"id", a[:20], `{"n":1}`, 0, 0, -1, "no secret matches"},
	} {
		r := Received{ID: tt.id, Timestamp: signed, Signature: tt.signature, Body: []byte(tt.body)}
		secret, err := Verify([]string{secretA, secretB}, r, signed.Add(tt.later), tt.tolerance)
		if secret != tt.secret || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: secret %d, %v; want %d, %q", name, secret, err, tt.secret, tt.fault)
		}
		if err != nil && strings.Contains(err.Error(), "MfKQ9") {
			t.Errorf("%s: %v shows a secret", name, err)
		}
	}
	if secret, err := Verify([]string{secretA, "hunter2"}, Received{}, signed, 0); secret != -1 || err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret that is none: %d, %v", secret, err)
	}
}
