package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Format is how a request carries its job.
type Format string

// The formats. In all of them the headers of Standard Webhooks are sent, and signatures are over the body that is sent.
const (
	// FormatStandard sends the payload as the body. It is the default.
	FormatStandard Format = "standard"

	// FormatCloudEvents is the binary mode of CloudEvents 1.0: the payload is the body, and the attributes of the
	// event are headers ce-*.
	FormatCloudEvents Format = "cloudevents"

	// FormatStructured is the structured mode: the body is the event as JSON. The payload is its data, byte for byte,
	// if it is JSON and its Content-Type is application/json, which is the default, or text/json. Any other payload is
	// its data_base64.
	FormatStructured Format = "cloudevents-structured"
)

// Formats lists the formats.
func Formats() []Format { return []Format{FormatStandard, FormatCloudEvents, FormatStructured} }

// makesEvents reports whether deliveries are events of CloudEvents.
func (f Format) makesEvents() bool { return f == FormatCloudEvents || f == FormatStructured }

// CloudEvents are attributes of events. The id of an event is the job's, the same on each attempt.
type CloudEvents struct {
	// Source is the attribute source: a URI-reference, in ASCII. It is required.
	Source string

	// Type is the attribute type of jobs that have no header ce-type: printable ASCII without spaces, quotation marks and percent signs. "" means
	// [DefaultEventType].
	Type string
}

// DefaultEventType is the attribute type if neither job nor settings name one.
const DefaultEventType = "tundish.job"

// Headers of a job that name attributes of its event. Their values are as in the HTTP binding of CloudEvents:
// printable ASCII, all else percent-encoded.
const (
	headerType    = "Ce-Type"
	headerSubject = "Ce-Subject"
)

const (
	typeEvent      = "application/cloudevents+json"
	typeEventBatch = "application/cloudevents-batch+json"
)

// uriReference matches the characters of RFC 3986. net/url checks the syntax.
var uriReference = regexp.MustCompile(`^(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+$`)

func (c CloudEvents) checkSource() error {
	if c.Source == "" {
		return errors.New(`is missing: want a URI-reference that names the producer, such as "https://example.com/orders"`)
	}
	if _, err := url.Parse(c.Source); err != nil || !uriReference.MatchString(c.Source) {
		return fmt.Errorf(`%q: want a URI-reference, such as "https://example.com/orders" or "/orders"`, c.Source)
	}
	return nil
}

func (c CloudEvents) checkType() error {
	if c.Type == "" {
		return nil
	}
	if plain, err := attribute(c.Type); err != nil || plain != c.Type {
		return fmt.Errorf(`%q: want printable ASCII without spaces, quotation marks and percent signs, such as "com.example.order.created"`, c.Type)
	}
	return nil
}

// attribute returns the value of an attribute that a header holds.
func attribute(header string) (string, error) {
	outside := func(r rune) bool { return r <= ' ' || r == '"' || r > '~' }
	value, err := url.PathUnescape(header)
	switch {
	case header == "":
		return "", errors.New("is empty")
	case strings.ContainsFunc(header, outside):
		return "", errors.New("want printable ASCII without spaces and quotation marks: percent-encode all else, as the HTTP binding of CloudEvents says")
	case err != nil:
		return "", errors.New("has a percent sign without two hex digits: write %25 for a percent sign")
	case !utf8.ValidString(value), strings.ContainsFunc(value, unicode.IsControl):
		return "", errors.New("has control characters, or is not UTF-8, once its percent-encoding is undone")
	}
	return value, nil
}

// checkHeaders reports the headers with which an event of this format would not be one, each a [*shaper.FieldError].
func (f Format) checkHeaders(headers map[string][]string) error {
	if !f.makesEvents() || len(headers) == 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := checkEventHeader(http.CanonicalHeaderKey(name), headers[name]); err != nil {
			errs = append(errs, &shaper.FieldError{Field: "headers." + name, Reason: err.Error()})
		}
	}
	return errors.Join(errs...)
}

func checkEventHeader(canonical string, values []string) error {
	switch {
	case canonical == "Content-Type":
		return checkDataType(values)
	case canonical == headerType, canonical == headerSubject:
		if len(values) != 1 {
			return fmt.Errorf("has %d values: an attribute has one", len(values))
		}
		_, err := attribute(values[0])
		return err
	case strings.HasPrefix(canonical, "Ce-"):
		return errors.New("is the worker's to set: of the attributes of its event, a job names ce-type and ce-subject only")
	}
	return nil
}

// checkDataType requires the media type of a payload, which becomes an attribute of the event.
func checkDataType(values []string) error {
	for _, value := range values {
		switch media := mediaType(value); {
		case media == "":
			return errors.New(`is no media type, such as "text/plain; charset=utf-8"`)
		case strings.HasPrefix(media, "application/cloudevents"):
			return errors.New("is the type of an event, and the bucket makes the event: give the payload alone, with its own type")
		}
	}
	return nil
}

// event holds the attributes of an event by their JSON names.
type event struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time,omitempty"` // when the job was enqueued
	DataContentType string `json:"datacontenttype"`
}

// body returns the body of an attempt. It brings the headers into the format: h holds the headers of the job and its flow.
func (c *Config) body(attempt *shaper.Attempt, h http.Header) ([]byte, error) {
	if !c.Format.makesEvents() {
		return attempt.Payload, nil
	}
	e := c.eventOf(attempt, h)
	if c.Format == FormatCloudEvents {
		e.setHeaders(h)
		return attempt.Payload, nil
	}
	return e.structured(attempt.Payload, h)
}

// eventOf returns the event of a job, without the attributes that its headers name.
func (c *Config) eventOf(attempt *shaper.Attempt, h http.Header) *event {
	e := event{
		SpecVersion: "1.0", ID: attempt.ID, Source: c.CloudEvents.Source, Type: cmp.Or(c.CloudEvents.Type, DefaultEventType),
		DataContentType: h.Get("Content-Type"),
	}
	if !attempt.Enqueued.IsZero() {
		e.Time = attempt.Enqueued.UTC().Format(time.RFC3339Nano)
	}
	return &e
}

// eventsOf returns the events of a batch, in the JSON batch format of CloudEvents. The jobs agree in the headers that name attributes.
func (c *Config) eventsOf(batch *shaper.Batch) bodyMaker {
	return func(_ *shaper.Attempt, h http.Header) ([]byte, error) {
		body := []byte{'['}
		for i, attempt := range batch.Attempts {
			text, err := c.eventOf(attempt, h).structured(attempt.Payload, h.Clone())
			if err != nil {
				return nil, err
			}
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, text...)
		}
		h.Del(headerType)
		h.Del(headerSubject)
		h.Set("Content-Type", typeEventBatch)
		return append(body, ']'), nil
	}
}

// structured returns the event as JSON, whose attributes the headers of the job may name.
func (e *event) structured(payload []byte, h http.Header) ([]byte, error) {
	for header, value := range map[string]*string{headerType: &e.Type, headerSubject: &e.Subject} {
		if given := h.Get(header); given != "" {
			var err error
			if *value, err = attribute(given); err != nil {
				return nil, fmt.Errorf("header %s: %w", header, err)
			}
			h.Del(header)
		}
	}
	h.Set("Content-Type", typeEvent)
	return e.with(payload)
}

// headerText percent-encodes what the HTTP binding does, of visible ASCII.
var headerText = strings.NewReplacer("%", "%25", `"`, "%22")

// setHeaders writes the attributes as headers. The job's headers stay as they are.
func (e *event) setHeaders(h http.Header) {
	h.Set("Ce-Specversion", e.SpecVersion)
	h.Set("Ce-Id", headerText.Replace(e.ID))
	h.Set("Ce-Source", headerText.Replace(e.Source))
	if h.Get(headerType) == "" {
		h.Set(headerType, e.Type)
	}
	if e.Time != "" {
		h.Set("Ce-Time", e.Time)
	}
}

// with returns the event with a payload as JSON.
func (e *event) with(payload []byte) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("make the event: %w", err)
	}
	body = bytes.TrimSuffix(body, []byte("}"))
	if isJSON(e.DataContentType) && utf8.Valid(payload) && json.Valid(payload) {
		body = append(append(body, `,"data":`...), payload...)
	} else {
		encoded, err := json.Marshal(payload) // a []byte is base64 in JSON
		if err != nil {
			return nil, fmt.Errorf("make the event: %w", err)
		}
		body = append(append(body, `,"data_base64":`...), encoded...)
	}
	return append(body, '}'), nil
}

// isJSON excludes types such as application/vnd.acme+json. The Go SDK reads no JSON object as data of such a type, and every SDK reads data_base64. The
// Go SDK compares types case-sensitively.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	return media == "application/json" || media == "text/json"
}

// mediaType is a Content-Type without its parameters, "" if it is none.
func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return media
}
