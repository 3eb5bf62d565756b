package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// A bucket gets another name as docs/configuration.md says: the old and the new bucket share a pool, producers go over to the new name one
// after the other, and the old bucket leaves the files once it is empty. No job is lost or comes twice, the downstream gets no more than the
// rate of the pool, and a producer that still has the old name is refused.
func TestBucketIsRenamedByHand(t *testing.T) {
	harness.BesideOthers(t)
	j := startJoining(t, redistest.Start(t), 30*time.Second, "")
	j.flowing(harness.BucketName)
	files := []string{"dispatcher0.toml", "dispatcher1.toml", "producer.toml"}
	for _, file := range files {
		j.configure(file, true)
	}
	j.flowing(poolName) // producers of both names
	remove := func(file string) {
		j.rewrite(file, func(text string) string {
			first, last := strings.Index(text, fmt.Sprintf("[[buckets]]\nname = %q", harness.BucketName)), strings.Index(text, "[[pools]]")
			return text[:first] + text[last:]
		})
	}
	remove("producer.toml")
	harness.Await(t, 20*time.Second, "the producer refuses the old name", func() bool {
		j.feed(poolMail, j.Receiver.URL)
		id := fmt.Sprintf("late-%d", j.posted["late"])
		j.posted["late"]++
		status, answer := j.PostBatch(harness.BucketName, []string{fmt.Sprintf(`{"id":%q,"payload":{},"url":%q}`, id, j.Receiver.URL)})
		if status == http.StatusOK {
			j.History.Admitted(id, time.Now())
		}
		return status == http.StatusNotFound && strings.Contains(string(answer), "unknown-bucket")
	})
	harness.Await(t, 60*time.Second, "the old bucket is empty", func() bool {
		j.feed(poolMail, j.Receiver.URL)
		return j.Inspector.HLen(t.Context(), placeKey(poolName, "body")).Val() == 0
	})
	for i, d := range j.Dispatchers {
		remove(fmt.Sprintf("dispatcher%d.toml", i))
		harness.Await(t, 20*time.Second, "the dispatcher has the new name only", func() bool {
			j.feed(poolMail, j.Receiver.URL)
			return strings.Count(d.Output.String(), "configuration reloaded") > 1
		})
	}
	r := j.AwaitDelivered(60 * time.Second)
	t.Log(r)
	if r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v, %d came twice", r.Err(), r.Extra)
	}
	shared := slices.Concat(j.slotsAt(harness.BucketName, poolName), j.slotsAt(poolMail, poolName))
	slices.Sort(shared)
	if early := shared.Early(poolRate); early >= time.Microsecond {
		t.Errorf("the slots of both names are %s ahead of the rate", early)
	}
}
