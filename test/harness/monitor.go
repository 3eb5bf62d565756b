package harness

import (
	"bufio"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// Grant is a slot that Redis has given to a job.
type Grant struct {
	Bucket, ID string
	Tag        string // of the bucket's keys: its pool, or its name
	Slot       int64  // microseconds of the clock of Redis, as at
	At         int64  // when it was claimed
	Read       int64  // when that was read here, by the clock of the machine
}

// LeaseChange is the begin of a lease, or its end.
type LeaseChange struct {
	Bucket, ID string
	Begins     bool
}

// SlotMonitor records the slots that Redis hands out to any process, also when the reply gets lost: a claim stores its reply. It also records leases. It
// reads the commands of Redis, in the order of their execution.
type SlotMonitor struct {
	mu     sync.Mutex
	grants []Grant
	leases []LeaseChange
}

var (
	written    = regexp.MustCompile(`"(HSET|ZADD|ZREM)" "tundish:\{([^}]*)\}:b:([^:]*):(claims|leases)" `)
	claimedJob = regexp.MustCompile(`([^\s;"]+) (-?\d+)(?: \d+)?;`) // id, slot, and of a job that was claimed before its epoch
)

// Monitor watches a server until the test ends.
func Monitor(t *testing.T, server *redistest.Server) *SlotMonitor {
	t.Helper()
	m := &SlotMonitor{}
	CommandsOf(t, server, m.Read)
	return m
}

// CommandsOf calls read with each command that a server gets, in its order, until the test ends.
func CommandsOf(t *testing.T, server *redistest.Server, read func(line string)) {
	t.Helper()
	conn, err := net.Dial("unix", server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 4<<20)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR answers %q, %v", lines.Text(), lines.Err())
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
			read(lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		reading.Wait()
	})
}

// Read records the commands in a line of MONITOR.
func (m *SlotMonitor) Read(line string) {
	if !strings.Contains(line, `:claims" `) && !strings.Contains(line, `:leases" `) {
		return
	}
	found := written.FindStringSubmatchIndex(line)
	if found == nil {
		return
	}
	part := func(n int) string { return line[found[2*n]:found[2*n+1]] }
	verb, tag, bucket, key, rest := part(1), part(2), part(3), part(4), line[found[1]:]
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case verb == "HSET" && key == "claims":
		// "dispatcher" "claim time id slot;id later;id later epoch;…": see lua/lib/claim_reply.lua
		fields := strings.Fields(rest)
		if len(fields) < 4 {
			return
		}
		at, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return
		}
		first := int64(0)
		for i, job := range claimedJob.FindAllStringSubmatch(rest, -1) {
			slot, err := strconv.ParseInt(job[2], 10, 64)
			if err != nil {
				continue
			}
			if i == 0 {
				first = slot
			} else {
				slot += first
			}
			m.grants = append(m.grants, Grant{bucket, job[1], tag, slot, at, time.Now().UnixMicro()})
		}
	case key == "leases":
		// "deadline" "id" "deadline" "id" … or "id" "id" …
		for i, word := range strings.Fields(rest) {
			id := strings.Trim(word, `"`)
			if strings.Trim(id, "-") == "" { // of no job: see lua/lib/encoding.lua
				continue
			}
			if verb == "ZREM" || verb == "ZADD" && i%2 == 1 {
				m.leases = append(m.leases, LeaseChange{bucket, id, verb == "ZADD"})
			}
		}
	}
}

// All returns the slots so far and the changes of leases, in the order of their execution.
func (m *SlotMonitor) All() ([]Grant, []LeaseChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants), slices.Clone(m.leases)
}

// Sorted are the slots until now, the first one first.
func (m *SlotMonitor) Sorted() Slots {
	grants, _ := m.All()
	all := make(Slots, len(grants))
	for i, g := range grants {
		all[i] = g.Slot
	}
	slices.Sort(all)
	return all
}
