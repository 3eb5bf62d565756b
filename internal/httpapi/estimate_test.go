package httpapi_test

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// Jobs reserve what the program that serves the API estimates, one by one and in a batch. A job with faults, or in a bucket without
// budgets, is not estimated.
func TestEstimate(t *testing.T) {
	t.Parallel()
	f := store(t)
	f.bucket.Budgets = shaper.Budgets{{Count: 9000, Per: time.Minute, Unit: shaper.UnitTokens}}
	producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Estimate: func(bucket string, job *shaper.Job) shaper.Units {
		if bucket != f.bucket.Name || len(job.Payload) == 0 {
			t.Errorf("asked of a job of %q with %q", bucket, job.Payload)
		}
		return shaper.Units{shaper.UnitInput: 7, shaper.UnitOutput: job.Units[shaper.UnitOutput]}
	}})
	for _, c := range []struct {
		path, body string
		want       []string
	}{
		{jobs, job(`"cost":{"output":9}`), []string{"input:7,output:9"}},
		{jobs, job(""), []string{"input:7,output:0"}},
		{jobs, job(`"priority":"none"`), nil},
		{jobs + "/batch", "[" + job("") + "," + job(`"cost":{"output":1}`) + "]", []string{"input:7,output:0", "input:7,output:1"}},
	} {
		f.got = nil
		w := request(producer, "127.0.0.1:9", "POST", "http://localhost"+c.path, c.body)
		if len(f.got) != len(c.want) {
			t.Errorf("%s: %d jobs; %s", c.body, len(f.got), w.Body)
			continue
		}
		for i, want := range c.want {
			must.Equal(t, f.got[i].Units.String(), want, "%s: job %d reserves", c.body, i)
		}
	}
	f.bucket.Budgets, f.got = nil, nil
	request(producer, "127.0.0.1:9", "POST", "http://localhost"+jobs, job(`"cost":{"output":9}`))
	if len(f.got) != 1 || f.got[0].Units.String() != "output:9" {
		t.Errorf("without budgets: %+v", f.got)
	}
}
