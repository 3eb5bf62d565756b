package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// FuzzAsEncodingJSON holds the package to encoding/json.
func FuzzAsEncodingJSON(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `{}`, `[]`, `[1,-0.5e+7,01]`, `{"a":[{"b":null}],"a":true}`, `"\ud83d\ude00\ud83d\u0041\u00e9\\\/\b"`, "\"\xff\xc3\"", `[1,]`, `{"a"}`, `{"a":1,}`, `[tru]`, `nul`, "\"\x01\"",
		`{"a":{"b":[1,{"c":"]}"}]}} x`, `-`, `1.`, `1e`, `"\x"`, `"\u12g4"`, `[[[[`, `{"a":`, `]`, `[}`, `{]`, `"`, `"\`,
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), strings.Repeat(`{"a":`, 10_001),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		valid := json.Valid(text)
		must.Be(t, Valid(text), valid, "%q: valid", text)
		var said string
		if valid && json.Unmarshal(text, &said) == nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte(`"`)) {
			value := New(text).Value()
			if got, ok := Text(value, 1<<20); got != said || !ok || Len(value) != int64(len(said)) || !Is(value, said) || Is(value, said+"x") {
				t.Fatalf("%q says %q, %d bytes; want %q", text, got, Len(value), said)
			}
			if got, _ := Text(value, 3); !strings.HasPrefix(said, got) || len(got) > 3 {
				t.Fatalf("%q begins with %q", said, got)
			}
		}
		var list []json.RawMessage
		if valid && json.Unmarshal(text, &list) == nil && list != nil {
			i := 0
			if !Elements(text, func(element []byte) bool {
				i++
				return string(element) == string(list[i-1])
			}) || i != len(list) {
				t.Fatalf("%q: element %d of %q", text, i, list)
			}
		}
		object := map[string]json.RawMessage{}
		isObject := Members(text, func(name, value []byte) {
			key, _ := Text(name, 1<<20)
			object[key] = value
		})
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); isObject != (err == nil && want != nil) {
			t.Fatalf("%q: an object: %t", text, isObject)
		}
		for name, value := range want {
			must.Be(t, string(object[name]), string(value), "%q: %q is %s, want %s", text, name, object[name], value)
		}
		if !bytes.Equal(text, before) {
			t.Fatalf("%q has become %q", before, text)
		}
	})
}

// A text that ends early is read as far as it goes.
func TestParts(t *testing.T) {
	t.Parallel()
	c := New([]byte(`{"a":[1,2],"b":{"c":"d"},"e":[3,4`))
	var seen []string
	whole := c.Parts(func(name []byte) bool {
		seen = append(seen, string(name))
		if c.Kind() == '[' {
			return c.Parts(func([]byte) bool { seen = append(seen, string(c.Value())); return true })
		}
		return true
	})
	if got := strings.Join(seen, " "); got != `"a" 1 2 "b" "e" 3 4` || whole || c.Err() == nil || c.Value() != nil || c.Kind() != 0 {
		t.Errorf("%s, %t, %v", got, whole, c.Err())
	}
	if c = New([]byte(` 7 `)); !c.Parts(nil) || !c.End() {
		t.Error(c.Err())
	}
}

func BenchmarkValid(b *testing.B) {
	for name, text := range map[string]string{
		"numbers": "[" + strings.Repeat("1,", 1<<19) + "1]", "objects": "[" + strings.Repeat("{},", 1<<19) + "1]", "text": `"` + strings.Repeat("hello ", 1<<18) + `"`,
		"nested": "[" + strings.Repeat(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+",", 60) + "1]",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Valid([]byte(text))
			}
		})
		b.Run(name+"/encoding", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				json.Valid([]byte(text))
			}
		})
	}
}
