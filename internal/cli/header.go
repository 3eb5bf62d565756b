package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/setting"
)

// valueForms is the part of helps on values that others must not read.
const valueForms = `Other users of this machine can read a command line. So a header may name the source of
its value: "Name: env:VARIABLE", "Name: file:/path", or "Name: -" for standard input.`

// maxSecret bounds the bytes that one value reads from standard input.
const maxSecret = 64 << 10

// secrets resolves values from other sources. Only one of them may be read from standard input.
type secrets struct {
	app   *invocation
	stdin bool // it is taken
}

// value returns the value of a text: a variable for "env:NAME", a file for "file:/path", standard input for "-", otherwise the text itself.
func (s *secrets) value(text string) (string, error) {
	if text != "-" {
		return config.SecretValue(s.app.options(), text)
	}
	if s.stdin {
		return "", errors.New("standard input is taken already, it holds one value")
	}
	s.stdin = true
	data, err := io.ReadAll(io.LimitReader(s.app.in, maxSecret+1))
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("read standard input: %w", err)
	case value == "" || len(data) > maxSecret:
		return "", fmt.Errorf("standard input has %d bytes, want 1 to %d", len(data), maxSecret)
	}
	return value, nil
}

// headers reads the values of --header, each "Name: value"; none is nil. No error shows a value.
func (s *secrets) headers(cmd *cobra.Command, of string, flags []string) (map[string][]string, error) {
	headers, names := make(map[string][]string, len(flags)), map[string]string{}
	for _, flag := range flags {
		name, value, ok := strings.Cut(flag, ":")
		if name = strings.TrimSpace(name); !ok || !httpguts.ValidHeaderFieldName(name) {
			name, _, _ = strings.Cut(name, "=")
			return nil, wrongUsage(cmd, "--%s: %q is not in the form \"Name: value\"", of, line(name, 60))
		}
		canonical := http.CanonicalHeaderKey(name)
		if names[canonical] == "" {
			names[canonical] = name
		}
		value, err := s.value(strings.TrimSpace(value))
		if err != nil {
			return nil, wrongUsage(cmd, "--%s: %q: %v", of, name, err)
		}
		headers[names[canonical]] = append(headers[names[canonical]], value)
	}
	return headers, nil
}

// single reads headers with one value each, as a flow has them.
func (s *secrets) single(cmd *cobra.Command, flags []string) (map[string]string, error) {
	lists, err := s.headers(cmd, "header", flags)
	if err != nil || len(lists) == 0 {
		return nil, err
	}
	headers := make(map[string]string, len(lists))
	for name, values := range lists {
		if len(values) > 1 {
			return nil, wrongUsage(cmd, "--header: %q is given twice", name)
		}
		headers[name] = values[0]
	}
	return headers, nil
}

// list reads the values of a flag for secrets: each value only names the place of a secret.
func (s *secrets) list(cmd *cobra.Command, name string, flags []string) ([]string, error) {
	values := make([]string, 0, len(flags))
	for _, flag := range flags {
		if flag != "-" && !setting.IsReference(flag) {
			return nil, wrongUsage(cmd, `%s: want env:VARIABLE, file:/path or "-" for standard input: other users can read a command line`, name)
		}
		value, err := s.value(flag)
		if err != nil {
			return nil, wrongUsage(cmd, "%s: %v", name, err)
		}
		values = append(values, value)
	}
	return values, nil
}
