package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// redisKey is a key of Redis, as the headers of the scripts describe it.
type redisKey struct {
	name, kind string
	defined    string         // the description in a piece of lua/lib, which wins
	said       map[string]int // the descriptions in headers of scripts, with their number
	scripts    []string       // that are given the key, without .lua
}

// redisKeys are all keys by their name.
type redisKeys map[string]*redisKey

// Forms of lines that describe keys. Lines that are further to the right continue a description.
var (
	scriptKey   = regexp.MustCompile(`^-- KEYS\[\d+\] +(\S+) +(hash|zset|list|string)  +(.*)$`)
	pieceKey    = regexp.MustCompile(`^--   ((?:…:|tundish:)\S+) +(hash|zset|list|string)  +(.*)$`)
	furtherKeys = regexp.MustCompile(`^-- KEYS\[\d+\.\.\.\] +()()(.*)$`)
	indented    = regexp.MustCompile(`^--(    +)(.*)$`)
	keyInText   = regexp.MustCompile(`(?:…:|tundish:)[\w{}:<>]+`)
)

// abbreviations are keys for which headers have one phrase. A test of package lua compares the phrases with the keys that Go passes.
var abbreviations = map[string][]string{
	"the pool's seven":                    {"conf", "pace", "departed", "buckets", "busy", "held", "gaps"},
	"conf, pace and departed of the pool": {"conf", "pace", "departed"},
	"what group.load wants":               {"…:groups", "…:group_settings", "…:due:<group>"},
}

// readKeys returns all keys that headers describe. A key that a header only names has to be described by another one.
func readKeys() (redisKeys, error) {
	keys := redisKeys{
		"tundish:{fleet}:data_lost": {name: "tundish:{fleet}:data_lost", kind: "string", defined: "the loss of data of the last day (package fleet); expires"},
	}
	given := map[string][]string{} // script -> keys that its header names
	for _, pattern := range [...]string{"lua/lib/*.lua", "lua/*.lua"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // a script of this project
			if err != nil {
				return nil, err
			}
			if given[file], err = keys.read(file, string(text)); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	for file, names := range given {
		for _, name := range names {
			k := keys[name]
			if k == nil {
				return nil, fmt.Errorf("%s names the key %s, and no header says what it holds: add \"--   %s  <type>  <meaning>\" to the header of a piece", file, name, name)
			}
			if script := strings.TrimSuffix(filepath.Base(file), ".lua"); !slices.Contains(k.scripts, script) {
				k.scripts = append(k.scripts, script)
			}
		}
	}
	return keys, nil
}

// read adds the descriptions of one header, and returns the keys that a script is given.
func (keys redisKeys) read(file, text string) (given []string, err error) {
	if strings.HasPrefix(file, "lua/lib/") {
		for _, d := range descriptions(text, pieceKey) {
			if err := keys.add(d, true); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	for _, d := range descriptions(text, scriptKey) {
		if err := keys.add(d, false); err != nil {
			return nil, err
		}
		given = append(append(given, d.name), keyInText.FindAllString(d.defined, -1)...)
	}
	for _, d := range descriptions(text, furtherKeys) {
		given = append(given, keyInText.FindAllString(d.defined, -1)...)
		for phrase, names := range abbreviations {
			if !strings.Contains(d.defined, phrase) {
				continue
			}
			for _, name := range names {
				if !strings.HasPrefix(name, "…:") {
					name = "…:p:<pool>:" + name
				}
				given = append(given, name)
			}
		}
	}
	return given, nil
}

// descriptions returns what a header says of keys in this form. Nested lines, "name  meaning", belong to the piece and are left out.
func descriptions(text string, form *regexp.Regexp) (found []redisKey) {
	inside, nested := false, 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		begin, more := form.FindStringSubmatch(line), indented.FindStringSubmatch(line)
		switch {
		case !strings.HasPrefix(line, "--"):
			return found
		case begin != nil:
			found, inside, nested = append(found, redisKey{name: begin[1], kind: begin[2], defined: begin[3]}), true, 0
		case more == nil:
			inside = false
		case inside && (nested == 0 || len(more[1]) <= nested):
			if nested = 0; form == pieceKey && strings.Contains(more[2], "  ") {
				nested = len(more[1])
			} else {
				found[len(found)-1].defined += " " + more[2]
			}
		}
	}
	return found
}

// add adds one description to the descriptions of the key.
func (keys redisKeys) add(d redisKey, inPiece bool) error {
	known := keys[d.name]
	switch {
	case known == nil:
		known = &redisKey{name: d.name, kind: d.kind, said: map[string]int{}}
		keys[d.name] = known
	case known.kind != d.kind:
		return fmt.Errorf("%s is a %s here, and a %s in another header", d.name, d.kind, known.kind)
	case inPiece:
		return fmt.Errorf("two pieces describe %s", d.name)
	}
	if inPiece {
		known.defined = d.defined
	} else {
		known.said[strings.TrimPrefix(d.defined, "of a bucket only: ")]++
	}
	return nil
}

// holds returns the description of a piece, else the one of most scripts, else the longest: a script describes only the fields that it uses.
func (k *redisKey) holds() string {
	best := ""
	for text, n := range k.said {
		if c := cmp.Or(cmp.Compare(n, k.said[best]), cmp.Compare(len(text), len(best)), cmp.Compare(text, best)); c > 0 {
			best = text
		}
	}
	return cmp.Or(k.defined, best)
}
