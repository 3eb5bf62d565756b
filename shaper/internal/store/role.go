package store

import (
	"reflect"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// Role says what a process may do with the settings of buckets and pools, with schedules, and with a bucket's place in a pool.
type Role int

// The roles.
const (
	// ReadOnly is a read-only process: it creates what is missing, changes nothing that exists, and obeys the effective settings. Producers,
	// operators and programs that use the library have this role.
	ReadOnly Role = iota

	// Authoritative writes its configuration when it starts and when it reloads. A dispatcher is an authoritative process.
	Authoritative
)

// isNamed reports whether only the name of a bucket is given: then Redis has to have its settings.
func isNamed(b *shaper.Bucket) bool { return reflect.DeepEqual(*b, shaper.Bucket{Name: b.Name}) }

// poolStarts records this process's writes of pool settings.
type poolStarts struct {
	mu      sync.Mutex
	of      map[string]poolStart
	writing map[string]*poolWrite
}

// poolWrite is a write under way.
type poolWrite struct {
	settings shaper.Pool
	done     chan struct{}
	err      error
}

type poolStart struct {
	settings shaper.Pool
	started  int64 // see lua/configure.lua; 0 none
}

// get returns when this process wrote the settings of the pool, 0 if it has not written these settings yet.
func (p *poolStarts) get(pool *shaper.Pool) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.of[pool.Name]; ok && samePool(&known.settings, pool) {
		return known.started
	}
	return 0
}

func (p *poolStarts) set(pool *shaper.Pool, started int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]poolStart{}
	}
	p.of[pool.Name] = poolStart{*pool, started}
}

// once calls write, or waits for a call with the same settings that is under way: each of two would count as a start of this process.
func (p *poolStarts) once(pool *shaper.Pool, write func() error) error {
	p.mu.Lock()
	if w := p.writing[pool.Name]; w != nil && samePool(&w.settings, pool) {
		p.mu.Unlock()
		<-w.done
		return w.err
	}
	w := &poolWrite{settings: *pool, done: make(chan struct{})}
	if p.writing == nil {
		p.writing = map[string]*poolWrite{}
	}
	p.writing[pool.Name] = w
	p.mu.Unlock()
	w.err = write()
	p.mu.Lock()
	if p.writing[pool.Name] == w {
		delete(p.writing, pool.Name)
	}
	p.mu.Unlock()
	close(w.done)
	return w.err
}
