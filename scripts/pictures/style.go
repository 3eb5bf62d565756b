package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// anchors say where a text is with respect to its X; the first is the default. classes are those that an element may have.
var (
	anchors = []string{"start", "middle", "end"}
	classes = []string{
		"blue", "green", "amber", "red", "plain", // colours
		"muted", "bold", "small", "code", // of texts
		"dashed", "thin", "thick", // of lines
	}
	escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

// style has the colours of both themes. The first of a pair is for light, the second for dark.
const style = `
:root { --page: #ffffff; --ink: #1f2328; --muted: #59636e; --edge: #8c959f; --fill: #f6f8fa;
  --blue: #0550ae; --blue-fill: #ddf4ff; --green: #116329; --green-fill: #dafbe1;
  --amber: #7d4e00; --amber-fill: #fff8c5; --red: #a40e26; --red-fill: #ffebe9 }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --ink: #e6edf3; --muted: #9198a1; --edge: #6e7681; --fill: #161b22;
  --blue: #79c0ff; --blue-fill: #0a1f44; --green: #7ee787; --green-fill: #033a16;
  --amber: #e3b341; --amber-fill: #341a00; --red: #ffa198; --red-fill: #490202 } }
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: var(--ink) }
.page { fill: var(--page) }
.box { fill: var(--fill); stroke: var(--edge); stroke-width: 1.2 }
.box.plain { fill: var(--page) }
.line { fill: none; stroke: var(--edge); stroke-width: 1.4 }
.area { fill: var(--fill); stroke: none }
.head { fill: var(--edge) }
rect.blue, .area.blue { fill: var(--blue-fill); stroke: var(--blue) } .line.blue { stroke: var(--blue) } text.blue { fill: var(--blue) }
rect.green, .area.green { fill: var(--green-fill); stroke: var(--green) } .line.green { stroke: var(--green) } text.green { fill: var(--green) }
rect.amber, .area.amber { fill: var(--amber-fill); stroke: var(--amber) } .line.amber { stroke: var(--amber) } text.amber { fill: var(--amber) }
rect.red, .area.red { fill: var(--red-fill); stroke: var(--red) } .line.red { stroke: var(--red) } text.red { fill: var(--red) }
.area { stroke: none }
.dashed { stroke-dasharray: 5 4 } .thin { stroke-width: 0.8 } .thick { stroke-width: 2.4 }
text.muted { fill: var(--muted) } text.bold { font-weight: 600 } text.small { font-size: 12px }
text.code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
`

// svg returns the whole picture.
func (p *picture) svg() ([]byte, error) {
	if p.title == "" {
		return nil, errors.New("the size has no title")
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" role=\"img\">\n", p.width, p.height, p.width, p.height)
	fmt.Fprintf(&out, "<!-- Made by go run ./scripts/pictures, of the text of the same name. -->\n<title>%s</title>\n<style>%s</style>\n", escaped.Replace(p.title), style)
	out.WriteString(`<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" class="head"/></marker></defs>` + "\n")
	fmt.Fprintf(&out, "<rect width=\"%g\" height=\"%g\" class=\"page\"/>\n%s</svg>\n", p.width, p.height, p.body.String())
	return out.Bytes(), nil
}
