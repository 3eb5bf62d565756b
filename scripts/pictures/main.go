// Program pictures draws the pictures of the documentation: docs/pictures/NAME.svg from docs/pictures/NAME.txt. Each picture has light and dark
// colours, which follow the reader's system. With -check it writes nothing, and exits with 1 if a picture is stale.
//
//	go run ./scripts/pictures
//
// A text has one element a line. Coordinates are pixels from the upper left corner. "|" in a text begins a new line, and a line that begins with "#" is
// a comment. A class chooses colours, see style.go.
//
//	size WIDTH HEIGHT "what the picture shows, for people who do not see it"
//	box X Y WIDTH HEIGHT [CLASS] "text"             the text is centred
//	frame X Y WIDTH HEIGHT [CLASS] "text"           the text is in the upper left corner, because other boxes are inside
//	text X Y [start|middle|end] [CLASS] "text"      X Y is the base line of the first line
//	line X Y X Y … [CLASS]                          arrow is the same with a head
//	area X Y X Y X Y … [CLASS]
//
// A text is a template, so that it has the numbers of the code. {{short .Breaker.OpenFor}} is a default of package shaper. {{lua "downstream" "CLIMB"}}
// is a number in lua/lib/downstream.lua, and {{short (micros (lua "downstream" "CLIMB"))}} the same as a time. A label that is wider than its box,
// leaves the picture or covers another label is an error.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

const folder = "docs/pictures"

func main() {
	if err := run(len(os.Args) > 1 && os.Args[1] == "-check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run draws all pictures, or checks that they are drawn.
func run(check bool) error {
	texts, err := filepath.Glob(folder + "/*.txt")
	if err != nil {
		return err
	}
	if len(texts) == 0 {
		return errors.New("there are no pictures in " + folder + ": run it in the root of the repository")
	}
	for _, name := range texts {
		text, err := os.ReadFile(name) //nolint:gosec // a picture of this project
		if err != nil {
			return err
		}
		drawn, err := draw(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		target := strings.TrimSuffix(name, ".txt") + ".svg"
		there, err := os.ReadFile(target) //nolint:gosec // the same
		switch {
		case err == nil && bytes.Equal(there, drawn):
		case check:
			return fmt.Errorf("%s is stale: run go run ./scripts/pictures", target)
		default:
			if err := os.WriteFile(target, drawn, 0o644); err != nil { //nolint:gosec // all may read it
				return err
			}
		}
	}
	return nil
}

// defaults are the settings that pictures name.
type defaults struct {
	Adapt   shaper.Adapt
	Breaker shaper.Breaker
	Retry   shaper.RetryPolicy
}

// draw returns the picture that a text describes.
func draw(text string) ([]byte, error) {
	filled, err := template.New("").Funcs(template.FuncMap{"short": short, "double": double, "lua": luaNumber, "micros": micros, "percent": percent}).Parse(text)
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	if err := filled.Execute(&lines, defaults{shaper.DefaultAdapt(), shaper.DefaultBreaker(), shaper.DefaultRetryPolicy()}); err != nil {
		return nil, err
	}
	p := picture{}
	n := 0
	for line := range strings.Lines(lines.String()) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e, err := parse(line)
		if err == nil {
			err = p.add(e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p.svg()
}

// short writes a duration in the largest unit of which it is a whole number: 30 s, 90 s, 10 min, 5 days.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

// double returns the wait after this many failed probes more.
func double(b shaper.Breaker, times int) time.Duration { return min(b.OpenFor<<times, b.MaxOpen) }

// luaNumber returns a number that a piece of lua/lib defines in a line of its own, or among others: NAME = 1.5.
func luaNumber(piece, name string) (float64, error) {
	file := "lua/lib/" + piece + ".lua"
	text, err := os.ReadFile(file) //nolint:gosec // a piece of this project
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`\b` + name + ` = ([0-9.]+)`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s defines no %s", file, name)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// micros returns a number of microseconds as a duration.
func micros(n float64) time.Duration { return time.Duration(n) * time.Microsecond }

// percent writes a part of one in percent.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", part*100) }
