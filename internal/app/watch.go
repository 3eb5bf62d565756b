package app

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long a file must be left alone to count as written.
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
			r.reload(ctx, false) // it may have changed before
		}
	}
	r.follow(ctx, asked, events, errs)
	return nil
}

// pollEvery is how often the files of secrets are looked at. A change has been the same at two looks before it is read: it may be written in parts.
const pollEvery = 500 * time.Millisecond

// fileStamps are files as they were at an instant. A link stands for the file behind it: Kubernetes turns a link to another version of all files at once.
type fileStamps map[string]os.FileInfo

// note takes in how a file is now.
func (s fileStamps) note(path string) {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	s[path] = info
}

// now returns the same files as they are now.
func (s fileStamps) now() fileStamps {
	found := make(fileStamps, len(s))
	for path := range s {
		found.note(path)
	}
	return found
}

// same reports whether no file differs.
func (s fileStamps) same(as fileStamps) bool {
	return maps.EqualFunc(s, as, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
}

// watchFile watches the directory of a file: editors, and Kubernetes for a
// ConfigMap, put another file in its place.
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

// follow turns the events of the file into reloads: one for all events within
// settleTime, because a file that is being written is read in half.
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

// concerns reports whether what happened to a name in the directory of the file
// can have changed the file: it is the file's own, or one of the links that
// Kubernetes turns to another version of all files at once.
func concerns(name, file string) bool {
	base := filepath.Base(name)
	return base == filepath.Base(file) || strings.HasPrefix(base, "..")
}
