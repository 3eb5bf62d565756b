package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/audit"
)

func (s *operatedServer) records(t *testing.T) []audit.Record {
	t.Helper()
	const all = 1000
	records, _, err := s.audit.Records(t.Context(), "", "", all)
	must.OK(t, err)
	return records
}

// wantRecord checks that a command has left one record of its operation, or none where it changes nothing. known is how many there were.
func wantRecord(t *testing.T, command, args, program string, records []audit.Record, known int) {
	t.Helper()
	var want []string
	for _, d := range httpapi.Operations() {
		byClients := program == "producer" && slices.Contains(d.Roles, apikey.RoleEnqueue)
		if d.Method != http.MethodGet && slices.Contains(d.Commands, command) && !byClients && !strings.Contains(args, "--dry-run") {
			want = append(want, d.ID)
		}
	}
	switch fresh := len(records) - known; {
	case len(want) == 0 && fresh != 0, len(want) > 0 && fresh != 1:
		t.Errorf("%s %s leaves %d records of %v", command, args, fresh, want)
	case fresh == 1:
		r := records[0]
		if !slices.Contains(want, r.Operation) || r.Author != "key root" || r.Outcome != audit.Done && r.Outcome != audit.Nothing || r.Address != "127.0.0.1" || r.Request == "" || len(r.Object) == 0 || r.At.IsZero() {
			t.Errorf("%s %s leaves %+v", command, args, r)
		}
	}
}

// What commands show of records is one line each, without what could write elsewhere in a terminal.
func TestAuditIsPlainText(t *testing.T) {
	t.Parallel()
	admin, table := newKey(t, "root --role admin --bucket *")
	server := newOperatedServer(t, "dispatcher", table)
	run := func(words ...string) *result {
		r := runArgs(t.Context(), []string{"TUNDISH_REDIS_URL=redis://127.0.0.1:1", "TUNDISH_KEY=" + admin}, "", append(append([]string{"dispatcher"}, words...), "--server", server.url)...)
		return &r
	}
	run("bucket", "pause", "plain", "--reason", "<b>one\n\u202etwo\x1b[31m").want(t, 0)
	run("bucket", "set", "plain", "--rate", "7/s").want(t, 0)
	all := run("audit", "plain")
	all.want(t, 0, "setBucket", "rate 50/s → 7/s", "pauseBucket", "<b>one")
	if out := all.out; strings.ContainsAny(out, "\u202e\x1b") || strings.Count(out, "\n") != 3 {
		t.Errorf("%q", out)
	}
	first := run("audit", "--limit", "1")
	first.want(t, 0, "setBucket")
	_, cursor, _ := strings.Cut(strings.TrimSpace(first.err), "--cursor ")
	run("audit", "--limit", "1", "--cursor", cursor).want(t, 0, "pauseBucket")
	run("audit", "grouped").want(t, 0)
	run("audit", "--author", "key root").want(t, 0, "setBucket", "pauseBucket")
	run("audit", "--author", "nobody").want(t, 0, "no operation of an author that contains \"nobody\"")
	run("audit", "--cursor", "x").want(t, 2, "cursor")
}
