// Package codec reads and writes the texts that Redis holds of jobs, flows and groups.
package codec

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// The body of a job in Redis is
//
//	base SP time SP mark index SP header LF payload
//
// Base plus index is the job's sequence number. Time is that of its enqueue, by the clock of Redis. The mark has 13 characters:
// 11 of the fingerprint, one of the kind and one of the priority (k, h, n or l; f: critical, and before all others). The kind is c if the caller chose the id and
// g if the client made it, in capitals if the job came with a delay. "~N" behind the index says that the job expires N
// microseconds after its enqueue. Letters behind that name the caller (see shaper.CallerMark). "=M" says which jobs it can be in a
// batch with (see lua/lib/codec.lua). Behind that, or behind "=" alone, "$" and units say what the job reserves of budgets, ">" that another
// process than a dispatcher sends it, and "&" that it is in a bundle, "&&" that it was redriven since; "." before that says that it has no callback. "^" says that a script writes one
// when it ends, for the URL or for the bundle. A ~
// always stands before the letters and the =, for programs that know neither. The header is JSON, empty if the job has none of its fields. The scripts read no further than the index.
type envelope struct {
	Flow        string              `json:"f,omitempty"`
	Group       string              `json:"g,omitempty"`
	URL         string              `json:"u,omitempty"`
	Method      string              `json:"m,omitempty"`
	Headers     map[string][]string `json:"h,omitempty"`
	MaxAttempts int                 `json:"a,omitempty"`
	Delay       int64               `json:"d,omitempty"` // microseconds, as asked
	NotBefore   int64               `json:"n,omitempty"` // Unix microseconds, as asked
	Cost        int64               `json:"c,omitempty"`
	Priority    shaper.Priority     `json:"p,omitempty"`
	ExpiresIn   int64               `json:"e,omitempty"` // microseconds
	Once        bool                `json:"o,omitempty"`
	Waiter      string              `json:"w,omitempty"` // the channel of the process that waits for the result
	Sender      string              `json:"s,omitempty"` // the channel of the process that waits for the ticket, and sends the job
	CallbackURL string              `json:"cu,omitempty"`
	FailureURL  string              `json:"fu,omitempty"`
	Bundle      string              `json:"b,omitempty"`
}

const (
	MarkLength    = 13
	kindCaller    = 'c'
	kindGenerated = 'g'

	// UnknownMark is the mark of a body that cannot be parsed.
	UnknownMark = "AAAAAAAAAAAcn"
)

// priorityLetters are the priorities in a mark, in the order of Priorities.
const priorityLetters = "khnl"

// letterFirst stands in the mark of a critical job instead of its priority, if it leaves before all others: see [shaper.Job].
const letterFirst = 'f'

// PriorityCode is a priority as the scripts have it, from 1 on; 0 for an unknown one.
func PriorityCode(p shaper.Priority) int {
	return slices.Index(shaper.Priorities(), cmp.Or(p, shaper.PriorityNormal)) + 1
}

// Places in a sealed job: the mark, the index in three digits, what it expires after, whether it has a callback, a space.
const (
	indexStart  = MarkLength
	indexLength = 3
)

// Sealed is a job as it travels to the enqueue script.
type Sealed []byte

// MarshalBinary lets a pointer stand for the bytes among a command's arguments.
func (s *Sealed) MarshalBinary() ([]byte, error) { return *s, nil }

// Sealing is what the text of a job says beside the job.
type Sealing struct {
	IsGenerated bool   // the client made the id
	Waiter      string // the channel of the process that waits for the result, "" if none does
	Sender      string // the channel of the process that waits for the ticket, "" if a dispatcher has the job sent
	HasCallback bool   // the end of the job is told to a URL: whether that is by its bucket is no content
	HasBatches  bool   // the bucket has them: the job then tells which jobs it agrees with
}

// Seal packs a job as it travels to the enqueue script: "mark index envelope",
// the index still to be written (setIndex). The same content gives the same
// mark but for the kind, which is how an id that is reused for other content
// is found out. Neither the caller nor Trace Context nor who waits is content: a job that is sent again comes from
// another request, and so with another trace, and another may wait for it. It takes the room of the one before, if
// that is enough.
func Seal(before Sealed, job *shaper.Job, how Sealing) (Sealed, error) {
	header := envelopeOf(job)
	header.Waiter, header.Sender = how.Waiter, how.Sender
	text, err := header.text()
	if err != nil {
		return nil, fmt.Errorf("pack job %q: %w", job.ID, err)
	}
	size := indexStart + indexLength + 1 + len(text) + 1 + len(job.Payload)
	if header.ExpiresIn > 0 {
		const longestExpiry = 20
		size += longestExpiry
	}
	isTold := how.HasCallback || job.Bundle != ""
	if isTold {
		size++
	}
	caller, agrees := shaper.CallerMark(job.Caller), agreementOf(job, how)
	if caller != "" {
		size += len(caller) + 1
	}
	size += len(agrees)
	packed := slices.Grow(before[:0], size)[:indexStart+indexLength]
	if header.ExpiresIn > 0 {
		packed = append(packed, '~')
		packed = strconv.AppendInt(packed, header.ExpiresIn, 10)
	} else if caller != "" || agrees != "" {
		packed = append(packed, '~') // programs that know no callers and no batches read no further
	}
	packed = append(packed, caller...)
	packed = append(packed, agrees...)
	if isTold {
		packed = append(packed, '^')
	}
	packed = append(packed, ' ')
	headerStart := len(packed)
	packed = append(packed, text...)
	packed = append(packed, '\n')
	packed = append(packed, job.Payload...)

	sum, err := fingerprint(job, header, packed[headerStart:])
	if err != nil {
		return nil, err
	}
	base64.RawURLEncoding.Encode(packed, sum[:8])
	packed[MarkLength-2] = kindCaller
	if how.IsGenerated {
		packed[MarkLength-2] = kindGenerated
	}
	packed[MarkLength-1] = priorityLetters[PriorityCode(job.Priority)-1]
	if job.First {
		packed[MarkLength-1] = letterFirst
	}
	return packed, nil
}

// fingerprint is the hash of what of a job is content. packed is its header and payload as they travel, with all else. Of a job of the proxy the
// headers, but for Content-Type, and the time that the client waits are none: clients of APIs say in headers which of their tries it is, and how
// the last one went.
func fingerprint(job *shaper.Job, header envelope, packed []byte) (sum [sha256.Size]byte, err error) {
	isOfProxy := strings.HasPrefix(job.ID, shaper.ProxyID)
	headers := untraced(job.Headers)
	if !isOfProxy && len(headers) == len(job.Headers) && header.Waiter == "" && header.Sender == "" {
		return sha256.Sum256(packed), nil
	}
	header.Headers, header.Waiter, header.Sender = headers, "", ""
	if isOfProxy {
		header.Headers, header.ExpiresIn, header.Priority = nil, 0, ""
		if kind := headers["Content-Type"]; len(kind) > 0 {
			header.Headers = map[string][]string{"Content-Type": kind}
		}
	}
	text, err := header.text()
	if err != nil {
		return sum, fmt.Errorf("pack job %q: %w", job.ID, err)
	}
	hash := sha256.New()
	hash.Write(append(text, '\n'))
	hash.Write(job.Payload)
	hash.Sum(sum[:0])
	return sum, nil
}

func envelopeOf(job *shaper.Job) envelope {
	header := envelope{
		Flow: job.Flow, Group: job.Group, URL: job.URL, Method: job.Method, Headers: job.Headers,
		MaxAttempts: job.MaxAttempts, Delay: job.Delay.Microseconds(), Cost: job.Cost,
		ExpiresIn: job.ExpiresIn.Microseconds(), Once: job.Once, CallbackURL: job.CallbackURL, FailureURL: job.FailureURL,
		Bundle: job.Bundle,
	}
	if header.Cost == 1 {
		header.Cost = 0 // the same as not given
	}
	if job.Priority != shaper.PriorityNormal {
		header.Priority = job.Priority
	}
	if !job.NotBefore.IsZero() {
		header.NotBefore = job.NotBefore.UnixMicro()
	}
	return header
}

// agreementOf is what stands behind the caller in a job's head: where the bucket has batches, what the job has in common with others; what
// it reserves of budgets; whether another process sends it; and whether it is in a bundle.
func agreementOf(job *shaper.Job, how Sealing) string {
	agrees := ""
	if how.HasBatches {
		agrees = agreement(job)
	}
	if how.Sender != "" {
		agrees = goesAlone
	}
	if len(job.Units) > 0 {
		agrees = cmp.Or(agrees, "=") + "$" + job.Units.String()
	}
	if how.Sender != "" {
		agrees += ">"
	}
	if job.Bundle != "" {
		agrees = cmp.Or(agrees, "=")
		if !how.HasCallback {
			agrees += onlyCounted
		}
		agrees += inBundle
	}
	return agrees
}

// goesAlone says that a job is in no batch with others.
const goesAlone = "=!"

// agreement is the part of a job's head that jobs of a batch have in common, "" if the job names nothing of its own.
func agreement(job *shaper.Job) string {
	if shaper.GoesAlone(job.Method) {
		return goesAlone
	}
	text := shaper.Agreement(job.URL, job.Method, job.Headers)
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return "=" + base64.RawURLEncoding.EncodeToString(sum[:6]) // the dispatcher compares the texts: see its deliverBatch
}

// SetIndex says that a sealed job is the index-th of its batch, from 1 on.
func SetIndex(packed Sealed, index int) {
	for i := indexLength - 1; i >= 0; i-- {
		packed[indexStart+i] = byte('0' + index%10)
		index /= 10
	}
}

// text is the header as JSON, empty if the job has none of its fields.
func (e envelope) text() ([]byte, error) {
	if e.empty() {
		return nil, nil
	}
	return json.Marshal(e)
}

// untraced returns the headers without those of W3C Trace Context: the same map if it has none of them.
func untraced(headers map[string][]string) map[string][]string {
	for name := range headers {
		if shaper.IsTraceHeader(name) {
			headers = maps.Clone(headers)
			maps.DeleteFunc(headers, func(name string, _ []string) bool { return shaper.IsTraceHeader(name) })
			break
		}
	}
	return headers
}

func (e *envelope) empty() bool {
	return e.Flow == "" && e.Group == "" && e.URL == "" && e.Method == "" && len(e.Headers) == 0 &&
		e.MaxAttempts == 0 && e.Delay == 0 && e.NotBefore == 0 && e.Cost == 0 && e.Priority == "" && e.ExpiresIn == 0 &&
		!e.Once && e.Waiter == "" && e.Sender == "" && e.CallbackURL == "" && e.FailureURL == "" && e.Bundle == ""
}

// What stands in a job's mark in Redis, before the "^" at its end, if it is in a bundle: see lua/lib/codec.lua.
const (
	inBundle    = "&"
	redriven    = "&&"
	onlyCounted = "." // before these: it has no callback
)

// isOnlyCounted reports whether a mark without its "^" is that of a job of a bundle without a callback.
func isOnlyCounted(mark string) bool {
	return strings.HasSuffix(strings.TrimRight(mark, inBundle), onlyCounted)
}

// Stored is a job as Redis keeps it.
type Stored struct {
	Mark     string // as scripts want it: with that of the caller behind it
	sequence int64
	Enqueued int64 // Unix microseconds
	envelope
	Payload []byte

	// Callback is, of a job that has a callback or is in a bundle, the body up to its payload: what OpenCallback reads; else "".
	Callback string

	OnlyCounted bool // it is in a bundle, and has no callback
	WasDead     bool // of a job of a bundle: it was redriven since it came
}

var errBody = errors.New("shaper: a job's body in Redis is not one of ours")

// Open reads what seal and the enqueue script have made.
func Open(body string) (Stored, error) {
	base, rest, ok1 := strings.Cut(body, " ")
	enqueued, rest, ok2 := strings.Cut(rest, " ")
	mark, rest, ok3 := strings.Cut(rest, " ")
	header, payload, ok4 := strings.Cut(rest, "\n")
	if !ok1 || !ok2 || !ok3 || !ok4 || len(mark) <= MarkLength {
		return Stored{}, errBody
	}
	s := Stored{Mark: mark[:MarkLength]}
	first, err1 := strconv.ParseInt(base, 10, 64)
	number, hasCallback := strings.CutSuffix(mark[MarkLength:], "^")
	if hasCallback {
		s.Callback, s.WasDead, s.OnlyCounted = body[:len(body)-len(payload)-1], strings.HasSuffix(number, redriven), isOnlyCounted(number)
	}
	number, more, _ := strings.Cut(number, "~")
	s.Mark += callerIn(more)
	index, err2 := strconv.ParseInt(number, 10, 64)
	s.sequence = first + index
	var err3, err4 error
	s.Enqueued, err4 = strconv.ParseInt(enqueued, 10, 64)
	if header != "" {
		s.envelope, err3 = openEnvelope(header)
	}
	s.Payload = []byte(payload)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return Stored{}, fmt.Errorf("%w: %w", errBody, err)
	}
	return s, nil
}

// callerIn returns the letters of a caller, of what stands behind the ~ of a job.
func callerIn(more string) string {
	more, _, _ = strings.Cut(strings.TrimLeft(more, "0123456789"), "=")
	return more
}

// Owner is the caller of the job.
func (s *Stored) Owner() shaper.Owner { return OwnerOf(s.Mark) }

// OwnerOf is the caller of a job, by its mark.
func OwnerOf(mark string) shaper.Owner { return shaper.Owner{Mark: mark[min(MarkLength, len(mark)):]} }

func openEnvelope(text string) (e envelope, err error) {
	err = json.Unmarshal([]byte(text), &e)
	return e, err
}

// meta is what Redis knows of a job that was claimed once; see claim.lua.
type meta struct {
	epoch, attempts, lost, crashes int64
	last                           shaper.LastResponse
}

func parseMeta(text string) (meta, error) {
	parts := strings.SplitN(text, " ", 7)
	if len(parts) != 7 {
		return meta{}, fmt.Errorf("shaper: a job's meta in Redis is not one of ours: %q", text)
	}
	var m meta
	for i, to := range []*int64{&m.epoch, &m.attempts, &m.lost, &m.crashes} {
		n, err := strconv.ParseInt(parts[i+1], 10, 64)
		if err != nil {
			return meta{}, fmt.Errorf("shaper: a job's meta in Redis is not one of ours: %w", err)
		}
		*to = n
	}
	if parts[6] == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(parts[6]), &m.last); err != nil {
		return meta{}, fmt.Errorf("shaper: the last response of a job: %w", err)
	}
	return m, nil
}

// FillJob adds what the body and the meta of a job say.
func FillJob(j *shaper.JobInfo, body, metaText string) error {
	job, err := Open(body)
	if err != nil {
		return err
	}
	j.Owner = job.Owner()
	j.Flow, j.Group, j.URL, j.Method, j.Headers, j.Payload = job.Flow, job.Group, job.URL, job.Method, job.Headers, job.Payload
	j.Enqueued = time.UnixMicro(job.Enqueued)
	if metaText == "" {
		return nil
	}
	m, err := parseMeta(metaText)
	if err != nil {
		return err
	}
	j.Attempts, j.Lost, j.Crashes, j.Last = int(m.attempts), int(m.lost), int(m.crashes), m.last
	j.Returned = int(max(m.epoch-m.attempts-m.lost, 0))
	return nil
}
