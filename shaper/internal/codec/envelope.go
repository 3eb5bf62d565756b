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
// Base plus index is the job's sequence number. Time is its enqueue time by the clock of Redis. The mark has 13 characters: 11 of the
// fingerprint, one for the kind and one for the priority (k, h, n or l; f: critical, and before all others). The kind is c if the caller chose
// the id, g if the client generated it; it is a capital if the job came with a delay. After the index follow, in this order:
//
//	~N  the job expires N microseconds after its enqueue; then letters that name the caller (see shaper.CallerMark)
//	=M  the jobs with which it can share a batch (see lua/lib/codec.lua); M may be empty
//	$   and units: what the job reserves of budgets
//	>   a process other than a dispatcher sends the job
//	.   the job has no callback
//	&   the job is in a bundle; && if it was redriven since
//	^   a script writes a callback when the job ends, for the URL or for the bundle
//
// A ~ always precedes the letters and the =. The header is JSON, empty if the job has none of its fields. The
// scripts read what precedes it, and of the header the flow and the group.
type envelope struct {
	Flow        string              `json:"f,omitempty"`
	Group       string              `json:"g,omitempty"`
	URL         string              `json:"u,omitempty"`
	Method      string              `json:"m,omitempty"`
	Headers     map[string][]string `json:"h,omitempty"`
	MaxAttempts int                 `json:"a,omitempty"`
	Delay       int64               `json:"d,omitempty"` // microseconds, as requested
	NotBefore   int64               `json:"n,omitempty"` // Unix microseconds, as requested
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

// letterFirst replaces the priority in the mark of a critical job that is sent before all others: see [shaper.Job].
const letterFirst = 'f'

// PriorityCode returns a priority as the scripts number it, from 1 on, or 0 if it is unknown.
func PriorityCode(p shaper.Priority) int {
	return slices.Index(shaper.Priorities(), cmp.Or(p, shaper.PriorityNormal)) + 1
}

// Offsets in a sealed job: the mark, the index in three digits, its expiry, whether it has a callback, a space.
const (
	indexStart  = MarkLength
	indexLength = 3
)

// Sealed is a job as it travels to the enqueue script.
type Sealed []byte

// MarshalBinary lets a pointer to the bytes be an argument of a command.
func (s *Sealed) MarshalBinary() ([]byte, error) { return *s, nil }

// Sealing is what the text of a job holds in addition to the job.
type Sealing struct {
	IsGenerated bool   // the client made the id
	Waiter      string // the channel of the process that waits for the result, "" if none does
	Sender      string // the channel of the process that waits for the ticket, "" if a dispatcher sends the job
	HasCallback bool   // a URL receives the outcome of the job; whether its bucket asks for that is not content
	HasBatches  bool   // the bucket has batches: the text then names the jobs with which this one agrees
}

// Seal packs a job as it travels to the enqueue script: "mark index envelope". SetIndex writes the index later. The same content gives the same
// mark but for the kind, so a script detects an id that is reused for other content. Caller, Trace Context and waiter are not content: a retried
// enqueue is another request, with another trace and perhaps another waiter. Seal reuses the previous memory if it is large enough.
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
	hasCallback := how.HasCallback || job.Bundle != ""
	if hasCallback {
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
		packed = append(packed, '~')
	}
	packed = append(packed, caller...)
	packed = append(packed, agrees...)
	if hasCallback {
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

// fingerprint returns the hash of a job's content. packed is its header and payload as they travel. Trace Context, waiter and sender are not
// content. For a job of the proxy, neither are its expiry, its priority and its headers other than Content-Type: clients of APIs number their
// retries in headers, and report how the previous one went.
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

// agreementOf returns the part of a job's head after the caller: what it has in common with the jobs of a batch, if the bucket has batches; what
// it reserves of budgets; whether another process sends it; whether it is in a bundle.
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

// goesAlone marks a job that shares no batch.
const goesAlone = "=!"

// agreement returns the part of a job's head that all jobs of its batch have in common, or "" if the job sets nothing of its own.
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

// SetIndex sets the position of a sealed job in its enqueue batch, from 1 on.
func SetIndex(packed Sealed, index int) {
	for i := indexLength - 1; i >= 0; i-- {
		packed[indexStart+i] = byte('0' + index%10)
		index /= 10
	}
}

// text returns the header as JSON, empty if the job has none of its fields.
func (e envelope) text() ([]byte, error) {
	if e.empty() {
		return nil, nil
	}
	return json.Marshal(e)
}

// untraced returns the headers without the W3C Trace Context headers: the same map if it has none.
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

// Suffixes of a job's mark in Redis, before the "^" at its end, if the job is in a bundle: see lua/lib/codec.lua.
const (
	inBundle    = "&"
	redriven    = "&&"
	onlyCounted = "." // before these: the job has no callback
)

// isOnlyCounted reports whether a mark without its "^" belongs to a job that is in a bundle and has no callback.
func isOnlyCounted(mark string) bool {
	return strings.HasSuffix(strings.TrimRight(mark, inBundle), onlyCounted)
}

// Stored is a job as Redis keeps it.
type Stored struct {
	Mark     string // as the scripts need it: followed by the caller's mark
	sequence int64
	Enqueued int64 // Unix microseconds
	envelope
	Payload []byte

	// Callback is the body up to its payload, which OpenCallback reads, if the job has a callback or is in a bundle; else "".
	Callback string

	OnlyCounted bool // the job is in a bundle, and has no callback
	WasDead     bool // of a job of a bundle: it was redriven since its enqueue
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

// callerIn returns the letters that name the caller, from the text after the ~ of a job.
func callerIn(more string) string {
	more, _, _ = strings.Cut(strings.TrimLeft(more, "0123456789"), "=")
	return more
}

// Owner returns the caller of the job.
func (s *Stored) Owner() shaper.Owner { return OwnerOf(s.Mark) }

// OwnerOf returns the caller of the job with this mark.
func OwnerOf(mark string) shaper.Owner { return shaper.Owner{Mark: mark[min(MarkLength, len(mark)):]} }

func openEnvelope(text string) (e envelope, err error) {
	err = json.Unmarshal([]byte(text), &e)
	return e, err
}

// meta is what Redis keeps of a job after its first claim; see claim.lua.
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

// FillJob adds the fields of the body and the meta of a job.
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
