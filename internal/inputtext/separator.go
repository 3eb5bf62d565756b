package inputtext

import (
	"bytes"
	"strings"
)

// Separators are the valid separators of columns, the most usual first.
const Separators = ",;\t|"

// Separator returns the separator of a table, by the row that names the columns: the most frequent one outside of quotation marks, and a comma if there
// is none. above is the number of bytes above that row: a line "sep=;", which names the separator to Excel, or a line "#TYPE …" of PowerShell.
func Separator(head []byte) (separator rune, above int) {
	if end := bytes.IndexByte(head, '\n'); end >= 0 {
		text := strings.Trim(string(head[:end]), "\r\"")
		if name, ok := strings.CutPrefix(text, "sep="); ok && len(name) == 1 && strings.Contains(Separators, name) {
			return rune(name[0]), end + 1
		}
		if strings.HasPrefix(text, "#TYPE ") {
			above = end + 1
		}
	}
	return mostFrequent(head[above:]), above
}

// mostFrequent is the separator that is most often in the first row.
func mostFrequent(head []byte) rune {
	var counts [256]int
	quoted := false
count:
	for _, c := range head {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\n' || c == '\r':
			break count
		default:
			counts[c]++
		}
	}
	separator := ','
	for _, one := range Separators {
		if counts[one] > counts[separator] {
			separator = one
		}
	}
	return separator
}
