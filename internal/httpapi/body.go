package httpapi

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// envelopeBytes bounds the rest of a body around the payload: ids, URLs, headers.
const envelopeBytes = 64 << 10

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"

	typeMergePatch = "application/merge-patch+json"
)

// mediaType returns the content type of the body if it is in taken. The request must
// name it: a web page can send forms and plain texts to any server.
func mediaType(r *http.Request, taken ...string) (string, *fault) {
	want := strings.Join(taken, " or ")
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return "", newFault(codeMediaType, "content encoding %q is not supported: send the body without one", encoding)
	}
	given := r.Header.Get("Content-Type")
	name, _, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(taken, name) {
		return "", newFault(codeMediaType, "content type %q: want %s", given, want)
	}
	return name, nil
}

// readBody reads a body of at most limit bytes; explain is a sentence that names the source of the limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, explain string) ([]byte, *fault) {
	if largest := usageOf(r).largestBody(); largest < limit {
		limit, explain = largest, "no larger one fits into the memory of producer.body_memory, where a body counts twice"
	}
	body, err := []byte(nil), error(&http.MaxBytesError{Limit: limit})
	if r.ContentLength <= limit {
		body, err = usageOf(r).read(http.MaxBytesReader(w, r.Body, limit), r.ContentLength, func(within time.Duration) { setReadDeadline(w, within) })
	}
	if err == nil {
		return body, nil
	}
	w.Header().Set("Connection", "close") // the rest of the body is not worth reading
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, newFault(codeTooLarge, "the body has more than %d bytes: %s", limit, explain)
	}
	if errors.Is(err, errBodyMemory) {
		return nil, usageOf(r).noMemory("")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, newFault(codeTooSlow, "the body came too slowly: want %d KiB in %s, or its end", paceBytes>>10, paceTime)
	}
	return nil, newFault(codeInvalid, "the body ended early")
}

// readText is readBody of JSON, or of lines of JSON. A byte order mark in front of it does not count, and UTF-16 is a fault.
func readText(w http.ResponseWriter, r *http.Request, limit int64, explain string) ([]byte, *fault) {
	body, f := readBody(w, r, limit, explain)
	if f != nil {
		return nil, f
	}
	text, err := inputtext.DropBOM(body)
	if err != nil {
		return nil, invalid(fieldErrors(bodyFault("%v", err)))
	}
	return text, nil
}

func readJobBody(w http.ResponseWriter, r *http.Request, bucket *shaper.Bucket) ([]byte, *fault) {
	return readText(w, r, bucket.MaxPayload+envelopeBytes,
		fmt.Sprintf("bucket %q takes payloads of at most %d bytes, and %d around them", bucket.Name, bucket.MaxPayload, envelopeBytes))
}

// idempotencyKey returns the header Idempotency-Key, or "". It is a
// string of structured fields, in quotes; without quotes it is accepted too.
func idempotencyKey(h http.Header) (string, error) {
	const name = "Idempotency-Key"
	values := h.Values(name)
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", &shaper.FieldError{Field: name, Reason: "is given twice"}
	}
	key := strings.TrimSpace(values[0])
	if strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem(values)
		text, ok := item.Value.(string)
		if err != nil || !ok {
			return "", &shaper.FieldError{Field: name, Reason: "is no string of structured fields"}
		}
		key = text
	}
	outside := func(r rune) bool { return r < ' ' || r > '~' }
	if strings.TrimSpace(key) == "" || len(key) > shaper.MaxIDBytes || strings.ContainsFunc(key, outside) {
		return "", &shaper.FieldError{Field: name, Reason: "want 1 to 255 characters of ASCII"}
	}
	return key, nil
}
