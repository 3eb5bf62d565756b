// Package inputtext reads text as spreadsheets, shells and editors save it: with a byte order mark, in another encoding than UTF-8, with
// the line ends of any system. The command line and the HTTP API read their input through it. It never guesses an encoding: bytes that
// are not UTF-8 would arrive as others.
package inputtext

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// bom is the byte order mark of UTF-8, which is no part of the text.
var bom = []byte("\xef\xbb\xbf")

// ErrUTF16 is the fault of a text that begins with the byte order mark of UTF-16 or UTF-32.
var ErrUTF16 = errors.New("is UTF-16, as Excel's \"Unicode Text\" and PowerShell's > write it: save it as UTF-8")

// DropBOM returns text without a byte order mark of UTF-8. The error is ErrUTF16.
func DropBOM(text []byte) ([]byte, error) {
	if isUTF16(text) {
		return nil, ErrUTF16
	}
	return bytes.TrimPrefix(text, bom), nil
}

// TrimLine returns a line without surrounding spaces. It also removes a byte order mark at the beginning: joined files have one in the middle.
func TrimLine(line []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(line), bom))
}

// isUTF16 judges the first two bytes: a byte order mark, or an ASCII character and a zero byte, with which no text in UTF-8 begins.
func isUTF16(text []byte) bool {
	if len(text) < 2 {
		return false
	}
	a, b := text[0], text[1]
	return a == 0xff && b == 0xfe || a == 0xfe && b == 0xff || a == 0 || b == 0
}

// NotUTF8Error is the fault of a text that has bytes which are not UTF-8.
type NotUTF8Error struct {
	Line   int64 // of the first such byte, from 1 on
	Column int   // the number of that byte in its line, from 1 on
}

func (e *NotUTF8Error) Error() string {
	return fmt.Sprintf("line %d is not UTF-8: save the file as UTF-8", e.Line)
}

// Check returns a [*NotUTF8Error] if text, which begins at a line, has bytes that are not UTF-8; or nil.
func Check(text []byte, line int64) error {
	if utf8.Valid(text) {
		return nil
	}
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		at += size
	}
	before := text[:at]
	return &NotUTF8Error{Line: line + int64(bytes.Count(before, []byte("\n"))), Column: at - bytes.LastIndexByte(before, '\n')}
}

// Newlines replaces each CR by LF in a text whose first line ends in a CR alone, as old programs for the Mac write it.
func Newlines(text []byte) []byte {
	at := bytes.IndexAny(text, "\r\n")
	if at < 0 || text[at] == '\n' || at+1 < len(text) && text[at+1] == '\n' {
		return text
	}
	return bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
}
