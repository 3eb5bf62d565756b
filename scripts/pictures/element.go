package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// element is one line of a text.
type element struct {
	kind    string
	numbers []float64
	words   []string // classes and anchors
	label   string
}

var word = regexp.MustCompile(`"[^"]*"|\S+`)

// parse reads a line.
func parse(line string) (element, error) {
	parts := word.FindAllString(line, -1)
	e := element{kind: parts[0]}
	for _, part := range parts[1:] {
		if label, quoted := strings.CutPrefix(part, `"`); quoted {
			e.label = strings.TrimSuffix(label, `"`)
		} else if n, err := strconv.ParseFloat(part, 64); err == nil {
			e.numbers = append(e.numbers, n)
		} else {
			e.words = append(e.words, part)
		}
	}
	want, known := map[string]int{"size": 2, "box": 4, "frame": 4, "text": 2, "line": -4, "arrow": -4, "area": -6}[e.kind] // negative: at least, and even
	switch n := len(e.numbers); {
	case !known:
		return e, fmt.Errorf("%q: want size, box, frame, text, line, arrow or area", e.kind)
	case want > 0 && n != want, want < 0 && (n < -want || n%2 != 0):
		return e, fmt.Errorf("%s has %d numbers", e.kind, n)
	}
	for _, w := range e.words {
		if !slices.Contains(classes, w) && !slices.Contains(anchors, w) {
			return e, fmt.Errorf("%q: want a class (%s) or an anchor (%s)", w, strings.Join(classes, ", "), strings.Join(anchors, ", "))
		}
	}
	return e, nil
}

// class returns the classes of an element, as SVG writes them.
func (e element) class() string {
	var found []string
	for _, w := range e.words {
		if slices.Contains(classes, w) {
			found = append(found, w)
		}
	}
	return strings.Join(found, " ")
}

// anchor returns where the text is with respect to its X.
func (e element) anchor() string {
	for _, w := range e.words {
		if slices.Contains(anchors, w) {
			return w
		}
	}
	return anchors[0]
}

// label is one line of text in the picture.
type label struct {
	x, y, width float64
	anchor      string
	text        string
}

// left returns the left end of the label.
func (l label) left() float64 {
	switch l.anchor {
	case "middle":
		return l.x - l.width/2
	case "end":
		return l.x - l.width
	}
	return l.x
}

// covers reports whether two labels overlap.
func (l label) covers(other label) bool {
	return l.left() < other.left()+other.width && other.left() < l.left()+l.width && l.y < other.y+textHeight && other.y < l.y+textHeight
}

// textHeight is what a line of text covers, and lineHeight the distance of two lines.
const (
	textHeight = 12
	lineHeight = 16
)

// wide returns about how wide a text is in the font of the pictures.
func wide(text, class string) float64 {
	em := 13.0
	if strings.Contains(class, "small") {
		em = 12
	}
	if strings.Contains(class, "code") {
		return em * 0.6 * float64(len([]rune(text)))
	}
	width := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("iljtf.,:;'|!() ", r):
			width += 0.32
		case strings.ContainsRune("mwMW", r):
			width += 0.86
		case r >= 'A' && r <= 'Z':
			width += 0.68
		default:
			width += 0.56
		}
	}
	if strings.Contains(class, "bold") {
		width *= 1.06
	}
	return em * width
}

// picture collects elements.
type picture struct {
	width, height float64
	title         string
	body          strings.Builder
	labels        []label
}

// add draws an element.
func (p *picture) add(e element) error {
	n := e.numbers
	if (p.width == 0) != (e.kind == "size") {
		return errors.New("the first element, and no other, is the size")
	}
	switch e.kind {
	case "size":
		p.width, p.height, p.title = n[0], n[1], e.label
	case "box", "frame":
		fmt.Fprintf(&p.body, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"6\" class=\"box %s\"/>\n", n[0], n[1], n[2], n[3], e.class())
		return p.inBox(e)
	case "text":
		return p.write(n[0], n[1], e.anchor(), e.class(), e.label)
	case "line", "arrow", "area":
		points := make([]string, 0, len(n)/2)
		for i := 0; i < len(n); i += 2 {
			points = append(points, fmt.Sprintf("%g,%g", n[i], n[i+1]))
		}
		if e.kind == "area" {
			fmt.Fprintf(&p.body, "<polygon points=\"%s\" class=\"area %s\"/>\n", strings.Join(points, " "), e.class())
			return nil
		}
		head := ""
		if e.kind == "arrow" {
			head = ` marker-end="url(#head)"`
		}
		fmt.Fprintf(&p.body, "<polyline points=\"%s\" class=\"line %s\"%s/>\n", strings.Join(points, " "), e.class(), head)
	}
	return nil
}

// inBox writes the text of a box in its middle, or of a frame in its corner.
func (p *picture) inBox(e element) error {
	n, lines := e.numbers, strings.Split(e.label, "|")
	for _, text := range lines {
		if w := wide(text, e.class()); w > n[2]-8 {
			return fmt.Errorf("%q is %.0f wide, and its box has room for %.0f", text, w, n[2]-8)
		}
	}
	if lineHeight*float64(len(lines)) > n[3] {
		return fmt.Errorf("%q has %d lines, and its box is %.0f high", e.label, len(lines), n[3])
	}
	if e.kind == "frame" {
		return p.write(n[0]+10, n[1]+19, "start", e.class(), e.label)
	}
	top := n[1] + (n[3]-lineHeight*float64(len(lines)))/2 + 12
	return p.write(n[0]+n[2]/2, top, "middle", e.class(), e.label)
}

// write writes lines of text, and refuses to cover others.
func (p *picture) write(x, y float64, anchor, class, text string) error {
	if text == "" {
		return nil
	}
	for i, line := range strings.Split(text, "|") {
		l := label{x, y + lineHeight*float64(i), wide(line, class), anchor, line}
		for _, other := range p.labels {
			if l.covers(other) {
				return fmt.Errorf("%q covers %q", line, other.text)
			}
		}
		if l.left() < 2 || l.left()+l.width > p.width-2 || l.y < textHeight || l.y > p.height-3 {
			return fmt.Errorf("%q leaves the picture: from %.0f to %.0f of %.0f", line, l.left(), l.left()+l.width, p.width)
		}
		p.labels = append(p.labels, l)
		fmt.Fprintf(&p.body, "<text x=\"%g\" y=\"%g\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", l.x, l.y, anchor, class, escaped.Replace(line))
	}
	return nil
}
