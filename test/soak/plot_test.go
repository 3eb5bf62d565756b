//go:build soak

package soak

import (
	"fmt"
	"strings"
)

// plotted is what a receiver saw in each second.
type plotted struct{ limit, accepted, throttled []int }

// svg draws it, 10 pixels a second.
func (p plotted) svg() string {
	const height, left, top, step = 240, 50, 30, 10
	width := left + step*len(p.limit) + 150
	highest := 1
	for i := range p.limit {
		highest = max(highest, p.limit[i], p.accepted[i], p.throttled[i])
	}
	y := func(n int) int { return top + height - n*height/highest }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height+top+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for n := 0; n <= highest; n += 25 {
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%d</text>`+"\n", left, y(n), left+step*len(p.limit), left-6, y(n)+4, n)
	}
	for i := 0; i <= len(p.limit); i += 10 {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%d s</text>`+"\n", left+step*i, top+height+18, i)
	}
	line := func(values []int, colour, name string, at int) {
		points := make([]string, len(values))
		for i, n := range values {
			points[i] = fmt.Sprintf("%d,%d", left+step*i+step/2, y(n))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+step*len(values)+8, top+16*at, colour, name)
	}
	line(p.limit, "#999", "what it takes", 1)
	line(p.accepted, "#0a7", "accepted a second", 2)
	line(p.throttled, "#c30", "429 a second", 3)
	return b.String() + "</svg>\n"
}
