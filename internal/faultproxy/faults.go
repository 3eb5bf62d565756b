package faultproxy

import (
	"bytes"
	"slices"
	"time"
)

// drop waits for a request that contains match.
type drop struct {
	match []byte
	done  chan struct{}
}

// SetDelay makes every byte arrive half of roundTrip later, in each direction. It costs time, not throughput: later bytes don't wait for earlier ones.
func (p *Proxy) SetDelay(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.oneWay = roundTrip / 2
}

// DropReply loses one reply. The next request that contains match, such as a command, is passed on; when Redis has carried it out, the proxy drops the
// reply and closes the client's connection. Then the returned channel is closed. The digest of a script and CR LF match a run of the script: the text of
// its library has the digest too, but not at the end of an argument.
//
// A pipeline is one request: all outstanding replies of the connection are lost with it. Several drops may be pending, and each loses one reply.
func (p *Proxy) DropReply(match string) <-chan struct{} {
	d := &drop{match: []byte(match), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// takeDrop returns the first pending drop whose match is in data, or begins in tail, the end of the previous data, and ends in data; or nil.
func (p *Proxy) takeDrop(tail, data []byte) *drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.drops) == 0 {
		return nil
	}
	seen := slices.Concat(tail, data)
	for i, d := range p.drops {
		if bytes.Contains(seen[max(0, len(tail)-len(d.match)+1):], d.match) {
			p.drops = slices.Delete(p.drops, i, i+1)
			return d
		}
	}
	return nil
}

// Freeze holds all bytes back and keeps the connections open, as a network does that loses every packet. New connections are accepted, and hang.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default: // frozen already
	}
}

// Thaw releases the bytes that Freeze held back, in order.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed: // not frozen
	default:
		close(p.thawed)
	}
}

// delay returns by how much a byte that is read now is late.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oneWay
}

// gate returns a channel that is closed when bytes may flow.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}
