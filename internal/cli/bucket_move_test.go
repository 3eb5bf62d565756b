//go:build soak

package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// A bucket is given a pool in the configuration, paused, moved and resumed.
func TestBucketMove(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.connected(t, nil, 1)
	s.run(t, "dispatcher bucket move nosuch --yes").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher bucket move webhooks --yes").want(t, 4, "there is nothing to move")
	s.enqueue(t, "webhooks", "a", "b")
	s.run(t, "dispatcher bucket move webhooks").want(t, 2, "--yes")
	s.run(t, "dispatcher bucket move webhooks --yes --timeout 0s").want(t, 2, "--timeout")
	s.run(t, "dispatcher bucket move webhooks --yes").want(t, 1, "run dispatcher bucket pause webhooks first")
	s.run(t, "dispatcher bucket move webhooks --abort").want(t, 0, `nothing is given up: bucket "webhooks" is not being moved`)
	s.run(t, "dispatcher bucket pause webhooks --reason moving").want(t, 0)
	s.run(t, "dispatcher bucket move webhooks --yes").want(t, 0, `moved: bucket "webhooks" from no pool to pool "vendor", 2 jobs`, "dispatcher bucket resume webhooks")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "2 of 10000", "pool        vendor:", "moving", "weight 3 of the bucket")
	s.run(t, "dispatcher job show webhooks b").want(t, 0, "queued", "position  1")

	var view struct {
		From  string `json:"from_pool"`
		To    string `json:"to_pool"`
		Moved bool
	}
	again := s.run(t, "dispatcher bucket move webhooks --yes --json")
	if err := json.Unmarshal([]byte(again.out), &view); err != nil || view.Moved || view.To != "vendor" {
		t.Errorf("%v: %s", err, again.out)
	}
	s.run(t, "dispatcher bucket move webhooks --yes").want(t, 0, `nothing is moved: bucket "webhooks" is in pool "vendor" already`)
	// Who has the configuration of before is told, and sees where it is.
	if _, err := s.client.Enqueue(t.Context(), shaper.Job{Bucket: "webhooks", Payload: []byte("1")}); err == nil || !strings.Contains(err.Error(), "restart it with the one of now") {
		t.Errorf("enqueue with the configuration of before: %v", err)
	}
}

// A move that has ended early is shown, and goes on or is given up.
func TestBucketMoveThatEndedEarly(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.connected(t, nil, 1)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0)
	// What a program leaves that dies in the middle of a move.
	freeze := func() {
		t.Helper()
		key := "tundish:{webhooks}:b:webhooks:"
		if err := s.redis.Rename(t.Context(), key+"conf", key+"conf_moving").Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.redis.HSet(t.Context(), key+"move", "state", "frozen", "move", "m", "tag", "vendor", "since", "1", "by", "user anna", "at_most", "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	freeze()
	s.run(t, "dispatcher bucket list").want(t, 0, `it is being moved to pool "vendor" since 1970-01-01T00:00:00.000Z by user anna`, "or with --abort")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 1, "the bucket is being moved")
	s.run(t, "dispatcher bucket move webhooks --abort").want(t, 0, `given up: bucket "webhooks" is where it was`)
	s.run(t, "dispatcher bucket list").want(t, 0, "it is in no pool, the configuration here has it in pool")
	freeze()
	s.run(t, "dispatcher bucket move webhooks --yes --json").want(t, 0, `"moved": true`, `"jobs": 1`, `"from_pool": ""`, `"to_pool": "vendor"`)
}
