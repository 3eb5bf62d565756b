package outgoing

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/shaper"
)

// framing are the headers that the connection writes, so that neither a job nor a flow can. Prefixes end in "-".
var framing = []string{
	"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-", "tundish-",
}

// CheckMethod reports whether a job may have a method; "" stands for POST. The error is a [*shaper.FieldError].
func CheckMethod(method string, allowed ...string) error {
	if method == "" || slices.Contains(allowed, method) {
		return nil
	}
	return &shaper.FieldError{Field: "method", Reason: "want one of " + strings.Join(allowed, ", ")}
}

// CheckHeaders returns every fault of a job's headers, joined, each a [*shaper.FieldError]. reserved are further names that the worker writes, in lower
// case. A name that ends in "-" reserves all names with that prefix.
func CheckHeaders(headers map[string][]string, reserved ...string) error {
	if len(headers) == 0 {
		return nil
	}
	return checkHeaders(headers, reserved)
}

func checkHeaders(headers map[string][]string, reserved []string) error {
	lines := 0
	for _, values := range headers {
		lines += len(values)
	}
	if lines > shaper.MaxHeaders {
		return &shaper.FieldError{
			Field:  "headers",
			Reason: fmt.Sprintf("%d of them: at most %d are taken", lines, shaper.MaxHeaders),
		}
	}
	var errs []error
	fail := func(field, reason string) {
		errs = append(errs, &shaper.FieldError{Field: field, Reason: reason})
	}
	size := 0
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			size += len(name) + len(value)
		}
		field, canonical := "headers."+name, textproto.CanonicalMIMEHeaderKey(name)
		switch twin, twice := seen[canonical]; {
		case !httpguts.ValidHeaderFieldName(name):
			fail(field, "is not a header's name")
		case slices.ContainsFunc(headers[name], func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }):
			fail(field, "its value holds characters that no header can")
		case isOneOf(name, framing) || isOneOf(name, reserved):
			fail(field, "is the worker's to set")
		case canonical == "Content-Type" && len(headers[name]) > 1:
			fail(field, "has several values: a body has one type")
		case twice:
			fail(field, "is the same header as "+twin)
		}
		seen[canonical] = name
	}
	if size > shaper.MaxHeaderBytes {
		fail("headers", fmt.Sprintf("%d bytes in total: at most %d are taken", size, shaper.MaxHeaderBytes))
	}
	return errors.Join(errs...)
}

// isOneOf treats "_" as "-": servers that turn headers into variables read both as the same name.
func isOneOf(name string, names []string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return slices.ContainsFunc(names, func(reserved string) bool {
		return name == reserved || strings.HasSuffix(reserved, "-") && strings.HasPrefix(name, reserved)
	})
}
