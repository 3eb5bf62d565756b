package dispatcher

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// A lost reply of any script: no job is lost and none is doubled.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, script := range []*lua.Script{lua.Enqueue, lua.Claim, lua.Settle, lua.Configure, lua.Extend} {
		t.Run(script.Name(), func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t, rig.Bucket("b", 500))
			w.Enqueue(1) // the scripts are known and the bucket is configured
			var dropped []<-chan struct{}
			drop := func(n int) {
				for range n {
					dropped = append(dropped, w.Proxy.DropReply(script.SHA()+"\r\n"))
				}
			}
			if script == lua.Enqueue {
				drop(2) // three tries in a call
			}
			if script == lua.Configure {
				drop(1) // by the dispatcher
			}
			stop := dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Lease = time.Second })
			w.Await(1)
			if script == lua.Claim || script == lua.Settle {
				drop(3)
			}
			w.Enqueue(60)
			w.Await(60)
			if script != lua.Extend {
				for _, done := range dropped {
					<-done
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.WantClean()
		})
	}
}

// A server that is full takes no job but is drained, also by a dispatcher that
// has just started.
func TestDispatcherStartsOnAFullServer(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	w.Enqueue(50)
	admin := w.Server.Client()
	info, err := admin.Info(t.Context(), "memory").Result()
	must.OK(t, err)
	_, rest, _ := strings.Cut(info, "used_memory:")
	var used int
	must.Get(fmt.Sscan(rest, &used))(t)
	must.OK(t, admin.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used/2)).Err())
	_, err = w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")})
	if err == nil || !redisconn.Unavailable(err) {
		t.Errorf("enqueue into a full server: %v", err)
	}
	stop := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	w.Await(50)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.WantClean()
}

// Scripts flushed and keys of a configuration gone: nobody sees an error.
func TestFlushedScriptsAndLostConfiguration(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	stop := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	admin := w.Server.Client()
	for range 5 {
		w.Enqueue(10)
		must.OK(t, admin.ScriptFlush(t.Context()).Err())
		must.OK(t, admin.Del(t.Context(), store.BucketKeys("b").Conf()).Err())
	}
	w.Await(50)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.WantClean()
}
