package console

import (
	"sync"
	"time"
)

const (
	maxAttempts  = 10     // failed logins of an address in a minute
	maxAddresses = 10_000 // that are counted. A wrong key of another address is refused and not counted
	maxLogins    = 30     // of a key in a minute
)

// attempts counts wrong keys, by address. An address with too many has to wait before another wrong key of it is checked. A right key logs in however
// many were wrong: it is searched first.
type attempts struct {
	mu     sync.Mutex
	minute time.Time
	failed map[string]int
}

func (a *attempts) turn(now time.Time) {
	if minute := now.Truncate(time.Minute); !minute.Equal(a.minute) || a.failed == nil {
		a.minute, a.failed = minute, map[string]int{}
	}
}

// mayTry reports whether an address may try another key now, otherwise how long it has to wait.
func (a *attempts) mayTry(address string, now time.Time) (wait time.Duration, may bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	if a.failed[address] < maxAttempts {
		return 0, true
	}
	return a.minute.Add(time.Minute).Sub(now), false
}

func (a *attempts) fail(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	if _, known := a.failed[address]; known || len(a.failed) < maxAddresses {
		a.failed[address]++
	}
}

// mayLogIn counts a login of a key, otherwise it reports how long it has to wait.
func (a *attempts) mayLogIn(key string, now time.Time) (wait time.Duration, may bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	if a.failed[key] >= maxLogins {
		return a.minute.Add(time.Minute).Sub(now), false
	}
	a.failed[key]++
	return 0, true
}
