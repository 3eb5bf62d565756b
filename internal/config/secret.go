package config

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

const mask = "***"

// Secret is a value that must not be seen. Printed or logged, it is "***", or "" if it is empty; only [Secret.Reveal] returns it.
type Secret string

// Reveal returns the value itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString masks the value for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format masks the value for every verb.
func (s Secret) Format(f fmt.State, verb rune) { writeMasked(f, verb, s.String(), s.GoString()) }

// MarshalText masks the value in JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue masks the value in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// SecretURL is the URL of a receiver. However it is printed or logged, its path and its query show as
// [shaper.RedactedPath]: they hold tokens of many services.
type SecretURL string

// Reveal returns the URL itself.
func (u SecretURL) Reveal() string { return string(u) }

func (u SecretURL) String() string { return shaper.RedactedURL(string(u)) }

// GoString masks the URL for %#v.
func (u SecretURL) GoString() string { return fmt.Sprintf("config.SecretURL(%q)", u.String()) }

// Format masks the URL for every verb.
func (u SecretURL) Format(f fmt.State, verb rune) { writeMasked(f, verb, u.String(), u.GoString()) }

// MarshalText masks the URL in JSON and the like.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue masks the URL in logs.
func (u SecretURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// withheld is text that is not printed, though the file has it literally: "env:NAME" is not followed.
type withheld string

const embedded RedisURL = "embedded"

// RedisURL is "embedded" or a URL for [redisconn.Connect]. Printed or logged, its password is "***", and so is a user name without a password.
type RedisURL string

// Reveal returns the URL with its password.
func (u RedisURL) Reveal() string { return string(u) }

// Embedded reports whether the in-process store is wanted.
func (u RedisURL) Embedded() bool { return u == embedded }

// String masks everything if the text is no URL, because any part may be the secret.
func (u RedisURL) String() string {
	if u == "" || u == embedded {
		return string(u)
	}
	if u.validate() != "" {
		return mask
	}
	return redisconn.RedactURL(string(u))
}

// GoString masks the password for %#v.
func (u RedisURL) GoString() string { return fmt.Sprintf("config.RedisURL(%q)", u.String()) }

// Format masks the password for every verb.
func (u RedisURL) Format(f fmt.State, verb rune) { writeMasked(f, verb, u.String(), u.GoString()) }

// MarshalText masks the password in JSON and the like.
func (u RedisURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue masks the password in logs.
func (u RedisURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// validate returns the fault of the URL, without any part of it, or "".
func (u RedisURL) validate() string {
	if u == embedded {
		return ""
	}
	err := redisconn.CheckURL(string(u))
	if err == nil {
		return ""
	}
	if want, ok := strings.CutPrefix(err.Error(), "want "); ok {
		return `want "embedded", ` + want
	}
	return err.Error()
}

func writeMasked(f fmt.State, verb rune, plain, syntax string) {
	switch {
	case verb == 'v' && f.Flag('#'):
		plain = syntax
	case verb == 'q':
		plain = fmt.Sprintf("%q", plain)
	}
	_, _ = io.WriteString(f, plain)
}
