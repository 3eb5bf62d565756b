package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// payload reads the payload: payload is JSON, which keeps its bytes; body is text; body_base64 is any bytes. A job has at most one of them.
func (d *jobDecoder) payload(field string, value []byte) {
	if isNull(value) {
		return
	}
	if d.body != "" {
		d.fail(field, "is given together with "+d.body+": a job has one body, choose one of payload, body and body_base64")
		return
	}
	d.body = field
	if field == "payload" {
		d.job.Payload = value
		return
	}
	text, _ := d.text(field, value)
	if field == "body" {
		d.job.Payload = []byte(text)
		return
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		d.fail(field, "is not base64 (RFC 4648, section 4, with padding)")
	}
	d.job.Payload = bytes
}

// addQuery reads the query of a request: its text, or an object of names, each with a text or a list of texts.
func (d *jobDecoder) addQuery(field string, value []byte) {
	switch {
	case isNull(value):
	case value[0] == '{':
		values := url.Values{}
		d.eachHeader(field, value, func(field, name string, value []byte) (lines int) {
			texts, lines := d.texts(field, value)
			values[name] = texts
			return lines
		})
		d.query = values.Encode()
	default:
		text, _ := d.text(field, value)
		d.query = strings.TrimPrefix(text, "?")
	}
}

// compose builds the job's URL and headers from path, query and content_type.
func (d *jobDecoder) compose() {
	if d.path != "" || d.query != "" {
		switch {
		case d.job.URL != "":
			d.fail("path", "is given together with url: a job goes to its own URL, or to a path below its bucket's URL")
		case strings.ContainsAny(d.path, "?#"):
			d.fail("path", "holds a ? or a #: percent-encode it, and give the query as query")
		default:
			d.job.URL = d.path
			if d.query != "" {
				d.job.URL += "?" + d.query
			}
		}
	} else if shaper.IsRelative(d.job.URL) {
		d.fail("url", "want an absolute URL: for a path below the bucket's URL, use path")
	}
	if d.contentType == "" {
		return
	}
	named := func(name string) bool { return http.CanonicalHeaderKey(name) == "Content-Type" }
	for name := range d.job.Headers {
		if named(name) {
			d.fail("content_type", "is given together with the header "+name+": choose one")
			return
		}
	}
	if len(d.job.Payload) == 0 {
		d.fail("content_type", "is given, and there is no body")
		return
	}
	if d.job.Headers == nil {
		d.job.Headers = map[string][]string{}
	}
	d.job.Headers["Content-Type"] = slices.Clip([]string{d.contentType})
}
