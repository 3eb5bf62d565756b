package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
)

// size is a number of bytes, written as an integer or as "256KiB", "1MiB".
type size int64

// percent is a part, written as "10%".
type percent int

// digest is a SHA-256, written as 64 hex digits. It is a string so that a
// missing digest differs from one of zeros.
type digest string

func (d digest) sum() (sum [sha256.Size]byte) {
	copy(sum[:], d)
	return sum
}

// digests are the digests of a key's secrets: written as one digest, or as a list.
type digests []digest

// convert converts a value of TOML to the type of a key, or returns the valid form.
func convert(k *setting.Key, v any) (any, error) {
	want := k.Type
	text, isText := v.(string)
	number, isInt := v.(int64)
	switch k.Unit {
	case setting.Bytes:
		if isInt {
			return size(number), nil
		}
		return parseSize(text)
	case setting.Percent:
		return parsePercent(text)
	}
	switch reflect.Zero(want).Interface().(type) {
	case time.Duration:
		return parseDuration(text)
	case admission.Rate:
		if _, list := v.([]any); list {
			return nil, errors.New("several rates are not supported in this version yet")
		}
		if text == "" && isText {
			return admission.Rate{}, nil // as if the key were not there
		}
		if !isText {
			return nil, errors.New(`want a number and a period, such as "50/s" or "100/15m"`)
		}
		return parseRate(text)
	case digests:
		return parseDigests(v)
	case Networks:
		return convertNetworks(v)
	case []netip.Prefix:
		return convertList(v, `a list of networks, such as ["10.0.0.0/8"]`, parsePrefix)
	case []time.Duration:
		return convertList(v, `a list of durations, such as ["5s", "5m", "30m"]`, parseDuration)
	case []admission.Rate:
		return convertList(v, `a list of numbers and periods, such as ["2000/d", "100/15m"]`, parseRate)
	case shaper.Budgets:
		return convertList(v, `a list of amounts and periods, such as ["90000 tokens/m", "2000000 tokens/d"]`, parseRate)
	case []string:
		return convertList(v, "a list of names in quotes", func(s string) (string, error) { return s, nil })
	case Secret:
		if isText {
			return Secret(text), nil
		}
	case RedisURL:
		if isText {
			return RedisURL(text), nil
		}
	case SecretURL:
		if strings.HasSuffix(text, shaper.RedactedPath) {
			return nil, errors.New("is redacted: give the whole URL")
		}
		if isText {
			return SecretURL(text), nil
		}
	}
	return convertPlain(want, v)
}

// convertPlain converts a value of TOML to a text, a truth value or a whole number.
func convertPlain(want reflect.Type, v any) (any, error) {
	text, isText := v.(string)
	number, isInt := v.(int64)
	switch want.Kind() {
	case reflect.String:
		if isText {
			return text, nil
		}
		return nil, errors.New("want text in quotes")
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		return nil, errors.New("want true or false")
	case reflect.Int, reflect.Int64:
		if isInt {
			return reflect.ValueOf(number).Convert(want).Interface(), nil
		}
		return nil, errors.New("want a whole number")
	}
	return nil, fmt.Errorf("cannot be a %s", want)
}

// scan converts the text of a variable to the value that TOML would have, as far as it can.
func scan(want reflect.Type, text string) any {
	if want == reflect.TypeFor[time.Duration]() {
		return text
	}
	switch want.Kind() {
	case reflect.Slice:
		var list []any
		for item := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(item))
		}
		return list
	case reflect.Int, reflect.Int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case reflect.Bool:
		if text == "true" || text == "false" {
			return text == "true"
		}
	}
	return text
}

// parseDuration requires a unit: without one, viper would read nanoseconds. Days are whole and stand alone: "3d".
func parseDuration(text string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if days, err := strconv.ParseUint(number, 10, 16); err == nil {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || text == "0" {
		return 0, errors.New(`want a duration with a unit (ms, s, m, h, d), such as "30s" or "3d"`)
	}
	return d, nil
}

func parseRate(text string) (admission.Rate, error) {
	rate, err := admission.ParseRate(text)
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), `": `)
		return admission.Rate{}, errors.New(reason)
	}
	return rate, nil
}

func parseSize(text string) (size, error) {
	for _, unit := range []struct {
		suffix string
		bytes  int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if digits, ok := strings.CutSuffix(text, unit.suffix); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 32); err == nil {
				return size(n * unit.bytes), nil
			}
		}
	}
	return 0, errors.New(`want a whole number of bytes, or text such as "256KiB" or "1MiB"`)
}

func parsePercent(text string) (percent, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil {
		return 0, errors.New(`want whole percents, such as "10%"`)
	}
	return percent(n), nil
}

// parseDigests parses one digest or a list. Its error repeats no part of them.
func parseDigests(v any) (digests, error) {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	var sums digests
	for _, item := range list {
		text, _ := item.(string)
		sum, err := parseDigest(text)
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum)
	}
	return sums, nil
}

// parseDigest never shows its argument: a user that confuses secret and digest puts the secret itself there.
func parseDigest(text string) (digest, error) {
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return "", errors.New("want the SHA-256 of the secret, 64 hex digits, as `producer key new` prints it; never the secret itself")
	}
	return digest(sum), nil
}

func convertNetworks(v any) (any, error) {
	list, err := convertList(v, `a list of networks or addresses, such as ["10.0.0.0/8", "192.0.2.7"]`, parseNetwork)
	if prefixes, ok := list.([]netip.Prefix); ok {
		return Networks(prefixes), err
	}
	return nil, err
}

// parseNetwork also accepts an address, as a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return parsePrefix(text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, errors.New(`want a network, such as "10.0.0.0/8" or "::1/128"`)
	}
	if prefix != prefix.Masked() {
		return prefix, fmt.Errorf("has bits beyond its length; want %q", prefix.Masked())
	}
	return prefix, nil
}

func convertList[T any](v any, want string, parse func(string) (T, error)) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("want " + want)
	}
	var values []T
	var errs []error
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			errs = append(errs, elementError{i, item, errors.New("want text in quotes")})
			continue
		}
		value, err := parse(text)
		if err != nil {
			errs = append(errs, elementError{i, item, err})
			continue
		}
		values = append(values, value)
	}
	return values, errors.Join(errs...)
}

// elementError is the fault of one element of a list.
type elementError struct {
	index int
	value any
	err   error
}

func (e elementError) Error() string { return e.err.Error() }

// literal writes a value as TOML, secrets masked.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return strconv.Quote(v)
	case Secret:
		return strconv.Quote(v.String())
	case RedisURL:
		return strconv.Quote(v.String())
	case SecretURL:
		return strconv.Quote(v.String())
	case withheld:
		return literal(Secret(v))
	case time.Duration:
		return strconv.Quote(brief(v))
	case size:
		return v.literal()
	case percent:
		return fmt.Sprintf(`"%d%%"`, v)
	case admission.Rate:
		if v.IsZero() {
			return `""`
		}
		return strconv.Quote(v.String())
	case digest:
		return strconv.Quote(hex.EncodeToString([]byte(v)))
	case digests:
		if len(v) == 1 {
			return literal(v[0])
		}
	case netip.Prefix:
		return strconv.Quote(v.String())
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.String:
		return strconv.Quote(value.String())
	case reflect.Slice:
		parts := make([]string, value.Len())
		for i := range parts {
			parts[i] = literal(value.Index(i).Interface())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

func (s size) literal() string {
	switch {
	case s != 0 && s%(1<<20) == 0:
		return fmt.Sprintf(`"%dMiB"`, s>>20)
	case s != 0 && s%(1<<10) == 0:
		return fmt.Sprintf(`"%dKiB"`, s>>10)
	}
	return strconv.FormatInt(int64(s), 10)
}

// brief is a duration without the zeros at its end: 1h, not 1h0m0s.
func brief(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}

// clip shortens a text that is too long to be shown.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
