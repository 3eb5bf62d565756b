package app

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long a file must be unchanged to count as written.
const settleTime = 250 * time.Millisecond

// run reloads at SIGHUP and when the file or a file of a secret was changed, until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	var events <-chan fsnotify.Event
	var errs <-chan error
	if path := r.source.file; path != "" {
		watcher, err := watchFile(path)
		if err != nil {
			r.log.WarnContext(ctx, "changes of the configuration file are not seen: after one, send SIGHUP", "file", path, "error", err)
		} else {
			defer watcher.Close()
			events, errs = watcher.Events, watcher.Errors
			r.reload(ctx, false) // it may have changed before the watch began
		}
	}
	r.follow(ctx, asked, events, errs)
	return nil
}

// pollEvery is the interval at which the files of secrets are checked. A change is read when two checks found the same file: it may be written in parts.
const pollEvery = 500 * time.Millisecond

// watchFile watches the directory of a file: editors, and Kubernetes for a ConfigMap, replace the file by another one.
func watchFile(path string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		_ = watcher.Close()
		return nil, err
	}
	return watcher, nil
}

// follow turns the events of the file into reloads: one for all events within settleTime, because a reload could read a file that is half written.
func (r *reloader) follow(ctx context.Context, asked <-chan os.Signal, events <-chan fsnotify.Event, errs <-chan error) {
	settled := time.NewTimer(settleTime)
	settled.Stop()
	defer settled.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	last := r.source.secrets
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			settled.Stop()
			r.reload(ctx, true)
		case event, ok := <-events:
			if !ok {
				events = nil
			} else if concerns(event.Name, r.source.file) {
				settled.Reset(settleTime)
			}
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			settled.Reset(settleTime) // an event was missed, perhaps
		case <-settled.C:
			r.reload(ctx, false)
		case <-poll.C:
			now := r.source.secrets.now()
			if now.same(last) && !now.same(r.source.secrets) {
				r.reload(ctx, false)
			}
			last = now
		}
	}
}

// concerns reports whether an event of a name in the directory of the file can have changed the file: it is the file's own name, or one of the links
// that Kubernetes switches to another version of all files at once.
func concerns(name, file string) bool {
	base := filepath.Base(name)
	return base == filepath.Base(file) || strings.HasPrefix(base, "..")
}
