package lua

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// withoutUnused returns the pieces of a script without the functions that it does not use. EVALSHA creates every function of a script in each
// run, and of the functions of all pieces a script uses four in ten. A library of functions is created once, so it has them all.
//
// A function is one of a piece's top level: it begins with "function" or "local function" at the start of a line, and ends there or with a line
// "end". It is unused if no part of the script that stays has its name, whatever is before it: so x.count(…) keeps the functions of all pieces
// that are called count. A name that is put together at run time is not seen.
func withoutUnused(pieces []piece, script string) []piece {
	parts := make([][]part, len(pieces))
	functions := map[string][]*part{}
	unread := [][]string{wordsOf(script)}
	for i, p := range pieces {
		parts[i] = partsOf(p.body)
		for j := range parts[i] {
			if part := &parts[i][j]; part.function != "" {
				functions[part.function] = append(functions[part.function], part)
			} else {
				unread = append(unread, part.words)
			}
		}
	}
	used := map[string]bool{}
	for len(unread) > 0 {
		words := unread[0]
		unread = unread[1:]
		for _, word := range words {
			if used[word] {
				continue
			}
			used[word] = true
			for _, function := range functions[word] {
				unread = append(unread, function.words)
			}
		}
	}
	kept := make([]piece, len(pieces))
	for i, p := range pieces {
		var body strings.Builder
		for _, part := range parts[i] {
			if part.function == "" || used[part.function] {
				body.WriteString(part.text)
			}
		}
		kept[i] = piece{p.name, body.String()}
	}
	return kept
}

// part is a function of a piece, with the comment before it, or what is between two functions.
type part struct {
	function string // its name, without the piece's; "" if the part is not a function
	text     string
	words    []string // all names in it
}

var (
	functionStart = regexp.MustCompile(`^(?:local )?function (?:\w+\.)?(\w+)\(`)
	partsByBody   sync.Map // body -> []part: each piece is read once, and not for each script
)

func partsOf(body string) []part {
	if known, ok := partsByBody.Load(body); ok {
		return known.([]part)
	}
	var parts []part
	var between, comment, function strings.Builder
	name := ""
	add := func(name string, text *strings.Builder) {
		if text.Len() > 0 {
			parts = append(parts, part{name, text.String(), wordsOf(text.String())})
			text.Reset()
		}
	}
	for line := range strings.Lines(body) {
		var start []string
		if strings.HasPrefix(line, "local function ") || strings.HasPrefix(line, "function ") {
			start = functionStart.FindStringSubmatch(line)
		}
		switch {
		case name != "":
			function.WriteString(line)
			if line == "end\n" {
				add(name, &function)
				name = ""
			}
		case start != nil:
			add("", &between)
			function.WriteString(comment.String() + line)
			comment.Reset()
			if strings.HasSuffix(line, " end\n") {
				add(start[1], &function)
			} else {
				name = start[1]
			}
		case strings.HasPrefix(line, "--"):
			comment.WriteString(line)
		default:
			between.WriteString(comment.String() + line)
			comment.Reset()
		}
	}
	between.WriteString(comment.String() + function.String()) // a function without an end: Lua says so
	add("", &between)
	partsByBody.Store(body, parts)
	return parts
}

// wordsOf returns the names in a text, each once, without those in comments that fill a line.
func wordsOf(text string) []string {
	seen := map[string]bool{}
	var words []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "--") {
			continue
		}
		for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if !seen[word] {
				seen[word] = true
				words = append(words, word)
			}
		}
	}
	return words
}
