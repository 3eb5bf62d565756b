package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// Sizes of a copy. A round trip of it reads and writes about so much, and each script some of that,
// so that it takes less than a millisecond.
const (
	copyFirst   = 16        // elements of a key of which nothing is known
	copyAtMost  = 200       // elements of one read; pairs of a hash or a zset count as one
	copyBytes   = 256 << 10 // of one read or write, but for an element that is larger
	copyRound   = 1000      // elements of all reads of a round trip
	copyStrings = 400       // of one write
	scanKeys    = 1000
	dropKeys    = 100
	checkFlows  = 50
)

// copying is a key that is being copied.
type copying struct {
	from, to string
	cursor   string
	want     int
	offset   int64 // elements of a list that were read
}

// copyAll copies all keys, and checks that they are there.
func (m *mover) copyAll(ctx context.Context, from string) error {
	source, target := m.keys(from), m.keys(m.to)
	if err := m.measure(ctx, source); err != nil {
		return err
	}
	copied := func(names []string) error {
		todo := make([]*copying, 0, len(names))
		for _, name := range names {
			// Of those, one is not there, and the others change; they only say who waits for what.
			if !slices.Contains([]string{source.conf(), source.standbys(), source.sentAway()}, name) {
				todo = append(todo, &copying{from: name, to: target.prefix + strings.TrimPrefix(name, source.prefix), cursor: "0", want: copyFirst})
			}
		}
		return m.copyKeys(ctx, todo)
	}
	if err := m.names(ctx, source, copied); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return m.check(ctx, source, target)
}

// measure says how much there is to copy, about.
func (m *mover) measure(ctx context.Context, source keys) error {
	sizes, err := m.sizes(ctx, source.fixed())
	if err != nil {
		return err
	}
	total := int64(0)
	for _, size := range sizes {
		total += size
	}
	jobs := sizes[slices.Index(source.fixed(), source.body())]
	if sizes[slices.Index(source.fixed(), source.flows())] > 0 { // their places are not among these
		total += jobs
	}
	m.sum.Jobs, m.copied = jobs, MoveProgress{Step: MoveCopies, Total: total}
	m.tell(m.copied)
	return nil
}

// names calls do with the names of a bucket's keys, some at a time. One that moves by itself
// holds so little that all are known; else the keys are looked for, as those of callers that
// limits count and of flows without jobs are listed nowhere.
func (m *mover) names(ctx context.Context, k keys, do func([]string) error) error {
	if m.atMost != "" {
		return do(k.fixed())
	}
	for cursor := uint64(0); ; {
		var names []string
		err := m.again(ctx, func(ctx context.Context) error {
			node, err := m.node(ctx, k)
			if err == nil {
				names, cursor, err = node.Scan(ctx, cursor, k.prefix+"*", scanKeys).Result()
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("look for its keys: %w", err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == k.move() })
		if len(names) > 0 {
			if err := do(names); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// node is where all keys of a bucket are.
func (m *mover) node(ctx context.Context, k keys) (redis.Cmdable, error) {
	if cluster, ok := m.store.redis.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, k.body())
	}
	return m.store.redis, nil
}

// copyKeys copies keys: each round trip writes what the one before it has read.
func (m *mover) copyKeys(ctx context.Context, todo []*copying) error {
	var writes []lua.Call
	for len(todo) > 0 || len(writes) > 0 {
		reading, elements := 0, 0
		calls := slices.Clone(writes)
		for _, c := range todo {
			if elements += c.want; reading > 0 && elements > copyRound {
				break
			}
			reading++
			calls = append(calls, lua.Call{Script: lua.MoveRead, Keys: []string{c.from}, Args: []any{c.cursor, c.want}})
		}
		replies, err := m.runAll(ctx, calls)
		if err != nil {
			return err
		}
		for _, reply := range replies[:len(writes)] {
			if err := taken("move_write", reply); err != nil {
				return err
			}
		}
		var more []*copying
		replies, writes = replies[len(writes):], nil
		for i, c := range todo[:reading] {
			some, err := m.read(c, replies[i])
			if err != nil {
				return err
			}
			writes = append(writes, some...)
			if c.cursor != "" {
				more = append(more, c)
			}
		}
		todo = append(more, todo[reading:]...)
		m.tell(m.copied)
	}
	return nil
}

// read takes in what was read of a key, and returns what writes it.
func (m *mover) read(c *copying, r *lua.Reader) (writes []lua.Call, err error) {
	kind, ttl := r.Text(), r.Int()
	_, c.cursor = r.Int(), r.Text()
	texts := readTexts(r, int64(r.Left()))
	if r.Err() != nil {
		return nil, fmt.Errorf("script move_read: %w", r.Err())
	}
	width := 1
	if kind == "hash" || kind == "zset" {
		width = 2
	}
	bytes, elements := 0, len(texts)/width
	for len(texts) > 0 {
		n, size := 0, 0
		for n < len(texts) && n < copyStrings && (n == 0 || size < copyBytes) {
			for _, text := range texts[n : n+width] {
				size += len(text)
			}
			n += width
		}
		args := make([]any, 0, 4+n)
		args = append(args, m.id, kind, c.offset, ttl)
		for _, text := range texts[:n] {
			args = append(args, text)
		}
		writes = append(writes, lua.Call{Script: lua.MoveWrite, Keys: []string{m.keys(m.to).move(), c.to}, Args: args})
		c.offset += int64(n / width)
		texts, bytes = texts[n:], bytes+size
	}
	m.copied.Entries += int64(elements)
	c.want = copyAtMost
	if elements > 0 {
		c.want = max(1, min(copyAtMost, copyBytes*elements/max(bytes, 1)))
	}
	return writes, nil
}

// runAll runs calls in one round trip, again until Redis has answered all of them.
func (m *mover) runAll(ctx context.Context, calls []lua.Call) ([]*lua.Reader, error) {
	readers := make([]*lua.Reader, len(calls))
	err := m.again(ctx, func(ctx context.Context) error {
		for i, result := range lua.RunAll(ctx, m.store.redis, calls) {
			if result.Err != nil {
				return result.Err
			}
			readers[i] = lua.NewReader(result.Reply)
		}
		return nil
	})
	return readers, err
}

// sizes are the numbers of elements of keys.
func (m *mover) sizes(ctx context.Context, names []string) ([]int64, error) {
	calls := make([]lua.Call, len(names))
	for i, name := range names {
		calls[i] = lua.Call{Script: lua.MoveRead, Keys: []string{name}, Args: []any{"0", 0}}
	}
	replies, err := m.runAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	sizes := make([]int64, len(names))
	for i, r := range replies {
		_, _ = r.Text(), r.Int()
		if sizes[i] = r.Int(); r.Err() != nil {
			return nil, fmt.Errorf("script move_read: %w", r.Err())
		}
	}
	return sizes, nil
}

// errDiffers says that a copy is not what it was made of: another one has completed the move and removed
// that, or a key was overlooked that went from node to node meanwhile.
var errDiffers = errors.New("the copy differs from what was copied")

// check compares the copy with what was copied. In a cluster also the places of all flows:
// there, keys may be overlooked whose slot goes to another node meanwhile.
func (m *mover) check(ctx context.Context, source, target keys) error {
	expires := []string{source.departed(), source.standbys()}
	names := slices.DeleteFunc(source.fixed(), func(name string) bool { return slices.Contains(expires, name) })
	if err := m.compare(ctx, source, target, names); err != nil {
		return err
	}
	if _, isCluster := m.store.redis.(*redis.ClusterClient); !isCluster {
		return nil
	}
	for cursor := uint64(0); ; {
		var pairs []string
		err := m.again(ctx, func(ctx context.Context) (err error) {
			pairs, cursor, err = m.store.redis.HScan(ctx, source.flows(), cursor, "", checkFlows).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("list its flows: %w", err)
		}
		for pairs := range slices.Chunk(pairs, 2*checkFlows) {
			names = nil
			for i := 0; i+1 < len(pairs); i += 2 {
				names = append(names, source.places(pairs[i])...)
			}
			if err := m.compare(ctx, source, target, names); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

func (m *mover) compare(ctx context.Context, source, target keys, names []string) error {
	all := slices.Clone(names)
	for _, name := range names {
		all = append(all, target.prefix+strings.TrimPrefix(name, source.prefix))
	}
	sizes, err := m.sizes(ctx, all)
	if err != nil {
		return err
	}
	for i, name := range names {
		if was, is := sizes[i], sizes[len(names)+i]; was != is {
			return fmt.Errorf("%w: %s has %d elements, its copy %d", errDiffers, name, was, is)
		}
	}
	return nil
}

// taken reports whether a script of a move did what it was told: the error is an errOvertaken.
func taken(script string, r *lua.Reader) error {
	switch code := r.Int(); {
	case r.Err() != nil:
		return fmt.Errorf("%w: script %s: %w", errOvertaken, script, r.Err())
	case code != 0:
		return fmt.Errorf("%w: script %s answered %d", errOvertaken, script, code)
	}
	return nil
}

// drop removes all keys of a tag but the mark, which has to be in a state that says so.
func (m *mover) drop(ctx context.Context, tag, state string) error {
	k := m.keys(tag)
	removed := func(names []string) error {
		var calls []lua.Call
		for some := range slices.Chunk(names, dropKeys) {
			calls = append(calls, lua.Call{Script: lua.MoveDrop, Keys: append([]string{k.move()}, some...), Args: []any{m.id, state}})
		}
		replies, err := m.runAll(ctx, calls)
		if err != nil {
			return err
		}
		for _, r := range replies {
			if err := taken("move_drop", r); err != nil {
				return err
			}
		}
		return nil
	}
	err := m.names(ctx, k, removed)
	if err == nil && m.atMost != "" {
		err = removed([]string{k.conf()})
	}
	if err != nil {
		return fmt.Errorf("remove what is under the tag %q: %w", tag, err)
	}
	return nil
}
