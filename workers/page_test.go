package workers

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/webhooks.md")

const page = "../docs/webhooks.md"

// TestPage holds the tables of docs/webhooks.md to the tables of these tests.
func TestPage(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(page))(t)
	want := string(text)
	for name, table := range map[string]string{"answers": answersTable(), "times": timesTable(), "errors": errorsTable()} {
		begin, end := "<!-- table of "+name+" -->\n", "<!-- end of table -->\n"
		before, rest, found := strings.Cut(want, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no table of %s", page, name)
		}
		want = before + begin + table + end + after
	}
	switch {
	case want == string(text):
	case *update:
		must.OK(t, os.WriteFile(page, []byte(want), 0o644))
	default:
		t.Errorf("%s is stale: run go test ./workers -run TestPage -update", page)
	}
}

var resultWords = map[shaper.Result]string{done: "is done", retry: "is tried again", dead: "is dead", held: "is held"}

var signalWords = map[shaper.Signal]string{nothing: "unknown", accepted: "works", throttled: "asks for less", failed: "fails"}

func answersTable() string {
	table := tableOf("the receiver answers", "with "+code(list(DefaultPolicy().Statuses))+", the job", "with "+code(list(listed.Statuses))+", the job", "reason", "the receiver")
	for _, row := range answers {
		reason := code(strings.ReplaceAll(row.reason, "%d", "<status>"))
		table += line(row.name, resultWords[row.any], resultWords[row.listed], reason, signalWords[row.signal])
	}
	return table
}

func timesTable() string {
	table := tableOf("", "header", "wait")
	for _, row := range namedWaits {
		if row.group == aboveTheBound { // the page says the rest in words
			break
		}
		wait := strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(row.want.String())
		table += line(row.group, code(strings.ReplaceAll(row.header, "\n", "`<br>`")), wait)
	}
	return table
}

func errorsTable() string {
	table := tableOf("the attempt ends with", "the job", "reason", "the receiver")
	for _, row := range failures {
		table += line(row.name, resultWords[row.result], code(row.reason), signalWords[row.signal])
	}
	return table
}

func tableOf(columns ...string) string {
	return line(columns...) + strings.Repeat("|---", len(columns)) + "|\n"
}

func line(cells ...string) string {
	return strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |\n", "|  |", "| |")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func list(texts []string) string {
	return strings.ReplaceAll(fmt.Sprintf("%q", texts), `" "`, `", "`)
}
