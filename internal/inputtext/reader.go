package inputtext

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Reader reads a text without a UTF-8 byte order mark, and with LF for CR if lines end in a CR alone.
type Reader struct {
	from    *bufio.Reader
	begun   bool
	quotes  bool // line ends between quotation marks do not count
	inQuote bool
	decided bool // the first line has ended
	lone    bool // in a CR alone
}

// NewReader returns a reader of lines. [Reader.Read] returns ErrUTF16 for a text in UTF-16.
func NewReader(from io.Reader) *Reader { return &Reader{from: bufio.NewReader(from)} }

// NewTableReader is NewReader for a table, whose fields may have line ends between quotation marks.
func NewTableReader(from io.Reader) *Reader {
	r := NewReader(from)
	r.quotes = true
	return r
}

// Read reads the text. It waits for no more bytes than it needs to judge the first ones.
func (r *Reader) Read(p []byte) (int, error) {
	if err := r.begin(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.newlines(p[:n])
	return n, err //nolint:wrapcheck // io.EOF is compared as it is
}

// begin judges the first bytes.
func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	first, err := r.from.Peek(1)
	if len(first) == 0 {
		return err //nolint:wrapcheck // io.EOF is compared as it is
	}
	most := 2
	if first[0] == bom[0] {
		most = len(bom)
	}
	first, err = r.from.Peek(most) // a shorter text ends early
	if err != nil && !errors.Is(err, io.EOF) {
		return err //nolint:wrapcheck // it is the source's
	}
	if isUTF16(first) {
		return ErrUTF16
	}
	if bytes.Equal(first, bom) {
		_, err = r.from.Discard(len(bom))
	} else {
		err = nil
	}
	r.begun = true
	return err //nolint:wrapcheck // the bytes are there
}

// newlines replaces CR by LF in the bytes that were read, once the first line has ended in a CR alone.
func (r *Reader) newlines(p []byte) {
	at := 0
	for ; !r.decided && at < len(p); at++ {
		switch c := p[at]; {
		case c == '"' && r.quotes:
			r.inQuote = !r.inQuote
		case r.inQuote:
		case c == '\n':
			r.decided = true
		case c == '\r':
			var next []byte
			if at+1 < len(p) {
				next = p[at+1 : at+2]
			} else {
				next, _ = r.from.Peek(1) // the text may end here
			}
			r.decided, r.lone = true, !bytes.Equal(next, []byte("\n"))
			at--
		}
	}
	if !r.lone {
		return
	}
	for ; at < len(p); at++ {
		if p[at] == '\r' {
			p[at] = '\n'
		}
	}
}
