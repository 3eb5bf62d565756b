package test

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

// grant is a slot that Redis has given to a job.
type grant struct {
	bucket, id string
	tag        string // of the bucket's keys: its pool, or its name
	slot       int64  // microseconds of the clock of Redis, as at
	at         int64  // when it was claimed
	read       int64  // when that was read here, by the clock of the machine
}

// leaseChange is the begin of a lease, or its end.
type leaseChange struct {
	bucket, id string
	begins     bool
}

// slotMonitor notes the slots that Redis hands out to whoever asks for them, also to other
// processes, and also where the answer gets lost: a claim writes down what it answers.
// It notes leases too. It reads what Redis does, in the order in which it does so.
type slotMonitor struct {
	mu     sync.Mutex
	grants []grant
	leases []leaseChange
}

var (
	written    = regexp.MustCompile(`"(HSET|ZADD|ZREM)" "tundish:\{([^}]*)\}:b:([^:]*):(claims|leases)" `)
	claimedJob = regexp.MustCompile(`([^\s;"]+) (-?\d+)(?: \d+)?;`) // id, slot, and of a job that was claimed before its epoch
)

// monitor watches a server until the test ends.
func monitor(t *testing.T, server *redistest.Server) *slotMonitor {
	t.Helper()
	m := &slotMonitor{}
	commandsOf(t, server, m.read)
	return m
}

// commandsOf has read take in each command that a server gets, in its order, until the test ends.
func commandsOf(t *testing.T, server *redistest.Server, read func(line string)) {
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

// read notes what a line of MONITOR says.
func (m *slotMonitor) read(line string) {
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
		// "dispatcher" "claim time id slot;id later;id later epoch;…": see lua/lib/handout.lua
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
			m.grants = append(m.grants, grant{bucket, job[1], tag, slot, at, time.Now().UnixMicro()})
		}
	case key == "leases":
		// "deadline" "id" "deadline" "id" … or "id" "id" …
		for i, word := range strings.Fields(rest) {
			id := strings.Trim(word, `"`)
			if strings.Trim(id, "-") == "" { // of no job: see lua/lib/encoding.lua
				continue
			}
			if verb == "ZREM" || verb == "ZADD" && i%2 == 1 {
				m.leases = append(m.leases, leaseChange{bucket, id, verb == "ZADD"})
			}
		}
	}
}

// all are the slots until now and the changes of leases, in the order in which Redis made them.
func (m *slotMonitor) all() ([]grant, []leaseChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants), slices.Clone(m.leases)
}

// sorted are the slots until now, the first one first.
func (m *slotMonitor) sorted() slots {
	grants, _ := m.all()
	all := make(slots, len(grants))
	for i, g := range grants {
		all[i] = g.slot
	}
	slices.Sort(all)
	return all
}
