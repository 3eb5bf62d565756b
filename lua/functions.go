package lua

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// AsFunctions has a client run the scripts as functions of Redis (FCALL) where the server lets it load
// them, and by EVALSHA where it does not. A run does the same either way. It costs Redis less as a function:
// EVALSHA makes the pieces of a script, some hundred Lua functions, anew in each run, and a library makes them once.
//
// The first run of a script loads its library, which takes two more round trips. So does a run at a server that
// has not got the library: one that restarted without its data, another node of a cluster, one where somebody said
// FUNCTION FLUSH, which is safe at any time. A server that refuses to load is not asked again for a minute. If Redis does not
// answer, the run fails as without functions.
//
// A library is named after the digest of its script, so programs of several versions run beside each other.
func AsFunctions(client redis.UniversalClient) {
	f := &asFunctions{client: client, loaded: map[*Script]*atomic.Bool{}}
	for _, script := range All() {
		f.loaded[script] = new(atomic.Bool)
	}
	client.AddHook(f)
}

// ScriptOf returns the script that a command runs, and nil if it runs none.
func ScriptOf(cmd redis.Cmder) *Script {
	args := cmd.Args()
	if len(args) < 2 {
		return nil
	}
	given, _ := args[1].(string)
	switch args[0] {
	case "fcall":
		given = given[strings.LastIndex(given, "_")+1:]
	case "eval":
		given = digest(given)
	case "evalsha":
	default:
		return nil
	}
	return byDigest[given]
}

// asFunctions is the hook of a client; see AsFunctions.
type asFunctions struct {
	client    redis.UniversalClient
	loaded    map[*Script]*atomic.Bool
	notBefore atomic.Int64 // nanoseconds since 1970: no server is asked to load before
}

// refusedFor is how long a server that refused to load a library is not asked again.
const refusedFor = time.Minute

// isMissing reports whether a function is not there. Nothing has run.
func isMissing(err error) bool { return err != nil && redis.HasErrorPrefix(err, "Function not found") }

// asScript reports whether a run has to be one of the script. Out of memory Redis runs no function at all, and a script decides
// itself what may go on. Nothing has run.
func asScript(err error) bool {
	return isMissing(err) || err != nil && redis.HasErrorPrefix(err, "OOM")
}

// DialHook lets connections be made as ever.
func (f *asFunctions) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook runs one script. What the server does not know had no effect, and is sent again.
func (f *asFunctions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := f.turn(ctx, cmd)
		err := next(ctx, cmd)
		if isMissing(err) && script != nil && f.load(ctx, script, cmd) {
			err = next(ctx, cmd)
		}
		if asScript(err) && script != nil {
			script.turnBack(cmd)
			err = next(ctx, cmd)
		}
		return err
	}
}

// ProcessPipelineHook runs scripts, and whatever else is in the pipeline.
func (f *asFunctions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		scripts := map[redis.Cmder]*Script{}
		for _, cmd := range cmds {
			if script := f.turn(ctx, cmd); script != nil {
				scripts[cmd] = script
			}
		}
		err := next(ctx, cmds)
		again := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool { return !asScript(cmd.Err()) || scripts[cmd] == nil })
		if len(again) == 0 {
			return err
		}
		loaded := map[*Script]bool{}
		for _, cmd := range again {
			script := scripts[cmd]
			if isMissing(cmd.Err()) && !loaded[script] { // the next run finds it
				loaded[script] = true
				f.load(ctx, script, cmd)
			}
			script.turnBack(cmd)
		}
		_ = next(ctx, again) // the commands hold the errors
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return cmd.Err()
			}
		}
		return nil
	}
}

// turn makes a call of a function of a command that runs a script, and returns the script. It returns nil where that
// stays as it is.
func (f *asFunctions) turn(ctx context.Context, cmd redis.Cmder) *Script {
	args := cmd.Args()
	if len(args) < 4 || args[0] != "evalsha" {
		return nil
	}
	digest, _ := args[1].(string)
	script := byDigest[digest]
	if script == nil || !f.loaded[script].Load() && !f.load(ctx, script, cmd) {
		return nil
	}
	args[0], args[1] = "fcall", script.function
	return script
}

func (s *Script) turnBack(cmd redis.Cmder) { cmd.Args()[0], cmd.Args()[1] = "evalsha", s.sha }

// load loads the library of a script where the command runs, and reports whether it is there now.
func (f *asFunctions) load(ctx context.Context, script *Script, cmd redis.Cmder) bool {
	if time.Now().UnixNano() < f.notBefore.Load() {
		return false
	}
	node := f.client
	if c, ok := f.client.(cluster); ok {
		key, _ := cmd.Args()[3].(string)
		master, err := c.MasterForKey(ctx, key)
		if err != nil {
			return false
		}
		node = master
	}
	// Redis closes the connection of a client without a password that sends much, and would not say why.
	if node.Ping(ctx).Err() != nil {
		return false
	}
	err := node.FunctionLoad(ctx, script.library).Err()
	there := err == nil || strings.Contains(err.Error(), "already exists")
	if refused := redis.Error(nil); !there && errors.As(err, &refused) {
		f.notBefore.Store(time.Now().Add(refusedFor).UnixNano())
	}
	f.loaded[script].Store(there)
	return there
}
