package lua

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Call is one run of a script in a [RunAll].
type Call struct {
	Script *Script
	Keys   []string
	Args   []any
}

// Result is the result of a call.
type Result struct {
	Reply any
	Err   error
}

// RunAll runs the calls in one pipeline (in a cluster, one per node) and returns their results in order. If the server does not know a script, a
// pipeline cannot fall back by itself. RunAll sends those calls again with their text, in a second round trip: they had no effect in the first.
func RunAll(ctx context.Context, client Client, calls []Call) []Result {
	results := make([]Result, len(calls))
	Spread(ctx, client, len(calls), func(n int) string { return calls[n].Keys[0] }, func(pending []int) {
		for _, byText := range []bool{false, true} {
			pending = runSome(ctx, client, calls, results, pending, byText)
		}
	})
	return results
}

// runSome runs some of the calls in one pipeline and returns the calls whose script the server does not know.
func runSome(ctx context.Context, client Client, calls []Call, results []Result, pending []int, byText bool) (unknown []int) {
	if len(pending) == 0 {
		return nil
	}
	pipe := client.Pipeline()
	cmds := make([]redis.Cmder, len(pending))
	for i, n := range pending {
		call := calls[n]
		cmds[i] = call.Script.command(ctx, "evalsha", call.Script.made().sha, call.Keys, call.Args)
		if byText {
			cmds[i] = call.Script.command(ctx, "eval", call.Script.made().text, call.Keys, call.Args)
		}
	}
	TextOnce(cmds)
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // queues; the error is the command's, below
	}
	Exec(ctx, pipe)
	for i, n := range pending {
		err := cmds[i].Err()
		switch {
		case err == nil:
			results[n].Reply = cmds[i].(*once).Val() //nolint:forcetypeassert // made above
		case !byText && redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, n)
		default:
			results[n].Err = fmt.Errorf("script %s: %w", calls[n].Script.name, err)
		}
	}
	return unknown
}

// TextOnce makes the commands of one pipeline to one server send the text of each script once. The first run with the text makes the script known to
// the server, so the others send its digest.
func TextOnce(cmds []redis.Cmder) {
	known := map[string]*Script{}
	for _, cmd := range cmds {
		args := cmd.Args()
		if len(args) < 2 || args[0] != "eval" { //nolint:mnd // the text is the second one
			continue
		}
		text, _ := args[1].(string)
		if script := known[text]; script != nil {
			script.turnBack(cmd)
		} else {
			known[text] = ScriptOf(cmd)
		}
	}
}

// Spread runs do for the numbers from 0 to n-1: all at once, or in a cluster concurrently for each node, with the numbers whose keys are there.
// In a pipeline over several nodes, one that does not respond would spoil the results of the others: at the timeout, go-redis marks every
// command of it as failed.
func Spread(ctx context.Context, client any, n int, key func(int) string, do func(some []int)) {
	c, ok := client.(cluster)
	if !ok {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		do(all)
		return
	}
	nodes := map[*redis.Client][]int{}
	for i := range n {
		node, err := c.MasterForKey(ctx, key(i))
		if err != nil {
			node = nil // do gets the error again
		}
		nodes[node] = append(nodes[node], i)
	}
	var all sync.WaitGroup
	for _, some := range nodes {
		all.Go(func() { do(some) })
	}
	all.Wait()
}

// Exec runs a pipeline. The commands hold the results and the errors, also where nothing was sent: a connection that cannot be made, or a password
// that Redis refuses, is an error of the pipeline, and go-redis leaves the commands without one.
func Exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil {
		return
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return // they have their own
		}
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}
