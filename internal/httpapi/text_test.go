package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// Half of a surrogate pair is no character: encoding/json would make another one of it.
func TestLoneSurrogatesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"url":"https://example.com/\ud800"`:                       "url: has half of",
		`"url":"https://example.com/\uDC00x"`:                      "url: has half of",
		`"headers":{"X-A":"\ud800\ud800\udc00"}`:                   "headers.X-A: has half of",
		`"headers":{"X-A":"\ud83d\u0041"}`:                         "headers.X-A: has half of",
		`"flow":"\udbff"`:                                          "flow: has half of",
		`"url":"https://example.com/","flow":"\ufffd\ud83d\ude00"`: "",
		`"flow":"` + "\ufffd" + `"`:                                "",
		`"flow":"\\ud800\n\ufffd"`:                                 "",
		`"flow":"\"\\"`:                                            "",
	} {
		_, err := httpapi.DecodeJob([]byte(`{"payload":"\ud800",` + text + `}`)) // a payload keeps its bytes
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
