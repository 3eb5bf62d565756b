package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper/audit"
)

// A reload that changes something is recorded, with the names of what it changes, also one that fails. Without Redis it goes on.
func TestReloadIsRecorded(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	f := newFollowed(t, reloadBefore)
	f.records = audit.NewLog(client, 0)
	f.reload(t.Context(), true) // nothing has changed
	f.write(t, strings.Replace(reloadBefore, "50/s", "60/s", 1))
	f.reload(t.Context(), false)
	f.fail = errors.New("no place")
	f.write(t, strings.Replace(reloadBefore, "100/m", "90/m", 1))
	f.reload(t.Context(), false)
	f.write(t, strings.Replace(reloadBefore, "100/m", "x", 1)) // refused: it changes nothing
	f.reload(t.Context(), false)

	records, _, err := f.records.Records(t.Context(), "", "", 10)
	if err != nil || len(records) != 2 {
		t.Fatalf("%+v, %v", records, err)
	}
	failed, done := records[0], records[1]
	if done.Outcome != audit.Done || done.Operation != "reload" || done.Author != "file "+f.path || done.Process == "" || !strings.Contains(strings.Join(texts(done), " "), `buckets "webhooks".rate`) {
		t.Errorf("%+v", done)
	}
	if failed.Outcome != audit.Failed || failed.Detail != "no place" {
		t.Errorf("%+v", failed)
	}

	server.Close()
	f.write(t, strings.Replace(reloadBefore, "50/s", "70/s", 1))
	f.reload(t.Context(), false)
	if f.rates[len(f.rates)-1] != "70/s" || !strings.Contains(f.log.String(), "the audit does not have this reload") {
		t.Errorf("followed %v:\n%s", f.rates, f.log)
	}
}

// texts are the names of the settings in a record.
func texts(r audit.Record) (names []string) {
	list, _ := r.Asked["settings"].([]any)
	for _, name := range list {
		text, _ := name.(string)
		names = append(names, text)
	}
	return names
}
