package lua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// AsFunctions makes a client run the scripts as functions of Redis (FCALL) if the server lets it load them, and by EVALSHA if not. A run does
// the same either way. Functions cost Redis less: EVALSHA creates the pieces of a script, some hundred Lua functions, again in each run; a
// library creates them once.
//
// The first run looks for the library and loads it if it is missing, which takes up to four more round trips. So does a run on a server without
// the library: after a restart without data, on another node of a cluster, or after FUNCTION FLUSH, which is safe at any time. The client does
// not retry a server that refuses to load for a minute. If Redis does not respond, the run fails as without functions.
//
// Another user of the Redis with the right to load functions can replace the library, and its code then runs with the rights of this client. A
// client in use compares the library with its own within each minute. If they differ, it reports an error that wraps [ErrLibraryChanged], once,
// and uses EVALSHA from then on. It also reports, once, that Redis does not let it compare.
func AsFunctions(client redis.UniversalClient, report func(error)) {
	client.AddHook(&asFunctions{client: client, report: report})
}

// library has all scripts as functions, which share one copy of the pieces. With a copy for each script, Lua had nearly four times as much to
// store and to scan for garbage: a decision of a limit took 5 µs more.
type library struct {
	name      string
	text      string          // the argument of FUNCTION LOAD
	functions map[*Script]any // strings: the names. They contain the version of the library, so programs of several versions run in parallel
}

// Library returns the argument of FUNCTION LOAD; see [AsFunctions].
func Library() string { return theLibrary().text }

var theLibrary = sync.OnceValue(func() *library {
	a, bodies := assembly{files: files, slow: slowPaths != ""}, map[*Script]string{}
	for _, script := range All() {
		own, err := a.add(script.name)
		if err != nil {
			panic(err) // newScript has read the same files
		}
		bodies[script] = own
	}
	render := func(version string) *library {
		var text strings.Builder
		name := "tundish_" + version
		// The pieces are created when the library is loaded. So none of them may keep state between runs. While a piece is created there are no KEYS,
		// no ARGV, and no libraries of Lua.
		fmt.Fprintf(&text, "#!lua name=%s\nlocal KEYS, ARGV\n%s", name, a.text())
		functions := map[*Script]any{}
		for _, script := range All() {
			function := "tundish_" + script.name + "_" + version + "_" + script.SHA()
			functions[script] = function
			fmt.Fprintf(&text, "redis.register_function('%s', function(keys, args)\nKEYS, ARGV = keys, args\n%send)\n", function, bodies[script])
		}
		return &library{name: name, text: text.String(), functions: functions}
	}
	const digits = 12
	return render(digest(render("").text)[:digits])
})

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
	return byDigest()[given]
}

// asFunctions is the hook of a client; see AsFunctions.
type asFunctions struct {
	client    redis.UniversalClient
	report    func(error)
	loaded    atomic.Bool  // the last server that was asked to load has the library
	notBefore atomic.Int64 // nanoseconds since 1970: earlier, no server is asked to load
	checkAt   atomic.Int64 // nanoseconds since 1970: the next check
	changed   atomic.Bool  // the library in Redis is another one: functions are not used any more
	unchecked atomic.Bool  // Redis does not let this client check
}

// refusedFor is how long the client does not retry a server that refused to load the library.
const refusedFor = time.Minute

// isMissing reports whether a function is not there. Nothing has run.
func isMissing(err error) bool { return err != nil && redis.HasErrorPrefix(err, "Function not found") }

// asScript reports whether a run has to be one of the script. Out of memory Redis runs no function at all, and a script decides
// itself what may go on. Nothing has run.
func asScript(err error) bool {
	return isMissing(err) || err != nil && redis.HasErrorPrefix(err, "OOM")
}

// DialHook does not change how connections are made.
func (f *asFunctions) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook runs one script. If the server does not know it, it had no effect, and is sent again.
func (f *asFunctions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := f.turn(ctx, cmd)
		err := next(ctx, cmd)
		if isMissing(err) && script != nil && f.load(ctx, cmd) {
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
		loaded := false
		for _, cmd := range again {
			if isMissing(cmd.Err()) && !loaded { // the next run finds it
				loaded = true
				f.load(ctx, cmd)
			}
			scripts[cmd].turnBack(cmd)
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

// turn changes a command that runs a script into a call of a function, and returns the script. It returns nil if the command does not change.
func (f *asFunctions) turn(ctx context.Context, cmd redis.Cmder) *Script {
	args := cmd.Args()
	if len(args) < 4 || args[0] != "evalsha" {
		return nil
	}
	digest, _ := args[1].(string)
	script := byDigest()[digest]
	if script == nil || f.changed.Load() || !f.loaded.Load() && !f.load(ctx, cmd) {
		return nil
	}
	f.checkInTime(ctx)
	args[0], args[1] = "fcall", theLibrary().functions[script]
	return script
}

func (s *Script) turnBack(cmd redis.Cmder) { cmd.Args()[0], cmd.Args()[1] = "evalsha", s.made().sha }

// load loads the library on the server of the command, and reports whether the server has it now.
func (f *asFunctions) load(ctx context.Context, cmd redis.Cmder) bool {
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
	// Redis closes the connection of an unauthenticated client that sends much, without a reason.
	if node.Ping(ctx).Err() != nil {
		return false
	}
	checked := checkNode(ctx, node)
	if f.isChanged(checked) {
		return false
	}
	err := checked
	if err != nil {
		err = node.FunctionLoad(ctx, Library()).Err()
	}
	there := err == nil || strings.Contains(err.Error(), "already exists")
	if there {
		f.reportUnchecked(checked)
		f.checkAt.CompareAndSwap(0, time.Now().Add(checkEvery).UnixNano())
	}
	if refused := redis.Error(nil); !there && errors.As(err, &refused) {
		f.notBefore.Store(time.Now().Add(refusedFor).UnixNano())
	}
	f.loaded.Store(there)
	return there
}
