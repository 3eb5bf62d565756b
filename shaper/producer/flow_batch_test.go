package producer_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// scriptFlows notes how many flows each enqueue script was given.
type scriptFlows struct{ counts []int }

func (s *scriptFlows) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scriptFlows) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scriptFlows) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && lua.ScriptOf(cmd) == lua.Enqueue {
			const flowCount = 7 // among ARGV, from 0 on
			args := cmd.Args()
			keys := args[2].(int)
			s.counts = append(s.counts, args[3+keys+flowCount].(int))
		}
		return err
	}
}

// One call with 1,000 jobs of 1,000 flows is many short scripts, not four that stop Redis for 12 ms each: by the
// number of flows in a script, and of commands that Redis ran for it.
func TestEnqueueBoundsTheFlowsOfAScript(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		inGroups       bool
		most, commands int
	}{
		"flows":            {false, 64, 64 * 10},
		"flows and groups": {true, 32, 32 * 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := rig.Bucket("b", 10_000)
			flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
			flow.Key, flow.MaxFlows, group.Key = shaper.FlowKeyJob, 10_000, shaper.FlowKeyJob
			b.Flow, b.Shed = &flow, shaper.NoShedding
			if test.inGroups {
				b.Group = &group
			}
			conn, seen := server.Client(), &scriptFlows{}
			conn.AddHook(seen)
			client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
			enqueue := func(prefix string, n int) {
				t.Helper()
				jobs := make([]shaper.Job, n)
				for i := range jobs {
					name := prefix + strconv.Itoa(i)
					jobs[i] = shaper.Job{Bucket: "b", Flow: name, Payload: []byte("1")}
					if test.inGroups {
						jobs[i].Group = name
					}
				}
				receipts := must.Get(client.Enqueue(t.Context(), jobs...))(t)
				for i := range receipts {
					if receipts[i].Refusal != nil {
						t.Fatal(receipts[i].Refusal)
					}
				}
			}
			enqueue("warm", 1) // configures the bucket, and loads the script
			seen.counts = nil
			before := commandsRun(t, conn)
			enqueue("f", 1000)
			sum, most := 0, 0
			for _, n := range seen.counts {
				sum, most = sum+n, max(most, n)
			}
			commands := commandsRun(t, conn) - before
			if sum != 1000 || most > test.most || commands > len(seen.counts)*test.commands {
				t.Errorf("%d scripts of up to %d flows, %d in all, ran %d commands: want at most %d flows and %d commands in each",
					len(seen.counts), most, sum, commands, test.most, test.commands)
			}
			t.Logf("%d scripts of up to %d flows ran %d commands", len(seen.counts), most, commands)
		})
	}
}

// commandsRun is how many commands Redis has run, those within scripts too.
func commandsRun(t *testing.T, client redis.UniversalClient) (sum int) {
	t.Helper()
	text := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
	for _, match := range regexp.MustCompile(`:calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1])
		sum += n
	}
	return sum
}
