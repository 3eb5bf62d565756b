package inputtext_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/tundish-io/tundish/internal/inputtext"
)

// What is read of a text as programs save it.
func TestReader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string
		fault      error
	}{
		"plain":                      {"a\nb", "a\nb", nil},
		"of Windows":                 {"a\r\nb\r\n", "a\r\nb\r\n", nil},
		"of an old Mac":              {"a\rb\r", "a\nb\n", nil},
		"CR in a later line":         {"a\nb\rc", "a\nb\rc", nil},
		"a line that ends in CR":     {"a\r", "a\n", nil},
		"UTF-8 with a mark":          {"\xef\xbb\xbfa\n", "a\n", nil},
		"a mark alone":               {"\xef\xbb\xbf", "", nil},
		"half a mark":                {"\xef\xbb", "\xef\xbb", nil},
		"empty":                      {"", "", nil},
		"one byte":                   {"7", "7", nil},
		"UTF-16LE with a mark":       {"\xff\xfe{\x00", "", inputtext.ErrUTF16},
		"UTF-16BE with a mark":       {"\xfe\xff\x00{", "", inputtext.ErrUTF16},
		"UTF-16LE without a mark":    {"{\x00\"\x00", "", inputtext.ErrUTF16},
		"UTF-16BE without a mark":    {"\x00{\x00\"", "", inputtext.ErrUTF16},
		"CR between quotation marks": {"\"a\rb\"\nc", "\"a\rb\"\nc", nil},
	} {
		for kind, from := range map[string]io.Reader{"whole": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text))} {
			got, err := io.ReadAll(inputtext.NewTableReader(from))
			if string(got) != c.want || !errors.Is(err, c.fault) {
				t.Errorf("%s, %s: %q, %v; want %q, %v", name, kind, got, err, c.want, c.fault)
			}
		}
	}
}

// A line of a person at a terminal is there at once.
func TestReaderWaitsForNoMoreThanALine(t *testing.T) {
	t.Parallel()
	from, to := io.Pipe()
	defer from.Close()
	go func() { _, _ = io.WriteString(to, "7\n") }()
	p := make([]byte, 10)
	if n, err := inputtext.NewReader(from).Read(p); string(p[:n]) != "7\n" || err != nil {
		t.Errorf("%q, %v", p[:n], err)
	}
}

func TestCheckNamesTheLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Müller":                          "",
		"a\n\ufffd":                       "", // the character itself is UTF-8
		"M\xfcller":                       "line 1 is not UTF-8: save the file as UTF-8",
		"a\nb\nM\xfcller\n":               "line 3 is not UTF-8: save the file as UTF-8",
		"\xed\xa0\x80":                    "line 1 is not UTF-8: save the file as UTF-8", // half of a surrogate pair
		"a\n" + "\u20ac"[:2] + "\n\xfc\n": "line 2 is not UTF-8: save the file as UTF-8",
	} {
		err := inputtext.Check([]byte(text), 1)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestSeparator(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]struct {
		separator rune
		line      int
	}{
		"id,name\n1;2;3;4": {',', 0}, "id;name;note\n": {';', 0}, "id\tname": {'\t', 0}, "id|name|x,y\r\n": {'|', 0}, "id": {',', 0}, "": {',', 0},
		"\"a;b;c\",d\n": {',', 0}, "sep=;\r\nid;name": {';', 7}, "\"sep=\t\"\nid,name": {'\t', 8}, "sep=x\nid,name": {',', 0}, "#TYPE System.Object\r\n\"id\";\"name\"": {';', 21}, "name;price, net;tax": {';', 0},
	} {
		if got, line := inputtext.Separator([]byte(head)); got != want.separator || line != want.line {
			t.Errorf("%q: %q behind %d bytes, want %q behind %d", head, got, line, want.separator, want.line)
		}
	}
}

// Whatever the bytes are, and in whatever pieces they come: the text is the same, has as many bytes, and only CR became LF.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "a\rb", "\xef\xbb\xbfa\r\n", "\xff\xfea\x00", "\"a\rb\"\r", "\xef\xbb", "\r", "a\n\xfc"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, err := io.ReadAll(inputtext.NewReader(bytes.NewReader(text)))
		pieces, again := io.ReadAll(inputtext.NewReader(iotest.OneByteReader(bytes.NewReader(text))))
		if !bytes.Equal(whole, pieces) || !errors.Is(again, err) {
			t.Fatalf("%q: %q, %v; byte by byte %q, %v", text, whole, err, pieces, again)
		}
		memory, fault := inputtext.DropBOM(text)
		if (err == nil) != (fault == nil) || err == nil && !bytes.Equal(whole, inputtext.Newlines(memory)) {
			t.Fatalf("%q: %q, %v; in memory %q, %v", text, whole, err, inputtext.Newlines(memory), fault)
		}
		if err == nil && !bytes.Equal(bytes.ReplaceAll(whole, []byte("\r"), []byte("\n")), bytes.ReplaceAll(memory, []byte("\r"), []byte("\n"))) {
			t.Fatalf("%q became %q", text, whole)
		}
		if (inputtext.Check(text, 1) == nil) != utf8.Valid(text) {
			t.Fatalf("%q: %v", text, inputtext.Check(text, 1))
		}
		inputtext.Separator(text)
	})
}
