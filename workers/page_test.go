package workers

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/responses.md")

const page = "../docs/responses.md"

// TestPage holds the tables of docs/responses.md to the tables of these tests.
func TestPage(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(page))(t)
	want := string(text)
	for name, table := range map[string]string{"answers": answersTable(), "times": timesTable(), "errors": errorsTable(), "waits": waitsTable()} {
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

var resultWords = map[shaper.Result]string{done: "done", retry: "retried", dead: "dead", held: "held"}

var signalWords = map[shaper.Signal]string{nothing: "unknown", accepted: "works", throttled: "asks for less", failed: "fails"}

func answersTable() string {
	table := tableOf("response", "job, with "+code(list(DefaultPolicy().Statuses)), "job, with "+code(list(listed.Statuses)), "reason", "the receiver")
	for _, row := range answers {
		if row.name == "" {
			continue
		}
		reason := code(strings.ReplaceAll(row.reason, "%d", "<status>"))
		table += line(row.name, resultWords[row.any], resultWords[row.listed], reason, signalWords[row.signal])
	}
	return table
}

func timesTable() string {
	table := tableOf("header", "wait")
	for _, row := range namedWaits {
		table += line(code(strings.ReplaceAll(row.header, "\n", "`<br>`")), short(row.want))
	}
	return table
}

func errorsTable() string {
	table := tableOf("the attempt ends with", "job", "reason", "the receiver")
	for _, row := range failures {
		table += line(row.name, resultWords[row.result], code(row.reason), signalWords[row.signal])
	}
	return table
}

// waitsTable has the waits of the default policy: their jitter is full, so the mean wait is half of the longest.
func waitsTable() string {
	table := tableOf("after attempt", "mean wait", "longest wait", "since the first, mean")
	policy, total := shaper.DefaultRetryPolicy(), time.Duration(0)
	for attempt := 1; attempt < policy.MaxAttempts; attempt++ {
		bound := policy.Delay(attempt, 0, 1)
		total += bound
		table += line(strconv.Itoa(attempt), short(bound/2), short(bound), short(total/2))
	}
	return table
}

// short writes a duration without zeros: to a second from a minute on, to a minute from an hour on.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	}
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
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
