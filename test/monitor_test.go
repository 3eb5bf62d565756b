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

	"github.com/tundish-io/tundish/internal/redistest"
)

// slotMonitor notes the slots that Redis hands out to whoever asks for them, also to
// other processes: a claim writes down what it answers.
type slotMonitor struct {
	mu    sync.Mutex
	slots []int64
}

var (
	claimsLine = `"HSET" "tundish:{` + bucketName + `}:b:` + bucketName + `:claims" `
	claimedJob = regexp.MustCompile(`[^\s;"]+ (\d+) \d+;`) // id, slot, epoch
)

// monitor watches a server until the test ends.
func monitor(t *testing.T, server *redistest.Server) *slotMonitor {
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
	m := &slotMonitor{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
			if _, answer, ok := strings.Cut(lines.Text(), claimsLine); ok {
				m.note(answer)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		reading.Wait()
	})
	return m
}

func (m *slotMonitor) note(answer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, job := range claimedJob.FindAllStringSubmatch(answer, -1) {
		if slot, err := strconv.ParseInt(job[1], 10, 64); err == nil {
			m.slots = append(m.slots, slot)
		}
	}
}

// sorted are the slots until now, the first one first.
func (m *slotMonitor) sorted() slots {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.slots))
}
