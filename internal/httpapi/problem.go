package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/shaper"
)

// code names a kind of problem, by which clients distinguish problems.
type code string

const (
	codeInvalid          code = "invalid"
	codeUnauthorized     code = "unauthorized"
	codeForbidden        code = "forbidden"
	codeUnknownRoute     code = "unknown-route"
	codeUnknownBucket    code = "unknown-bucket"
	codeUnknownJob       code = "unknown-job"
	codeNoResult         code = "no-result"
	codeNotEnded         code = "not-ended"
	codeNoProxy          code = "no-proxy"
	codeUnknownModel     code = "unknown-model"
	codeAnswerNotKept    code = "answer-not-kept"
	codeNoAnswer         code = "no-answer"
	codeThrottled        code = "api-throttled"
	codeResultTooLarge   code = "result-too-large"
	codeNotInTime        code = "not-in-time"
	codeUnknownLimit     code = "unknown-limit"
	codeUnknownPool      code = "unknown-pool"
	codeUnknownSchedule  code = "unknown-schedule"
	codeScheduleConflict code = "schedule-conflict"
	codeUnknownFlow           = code(shaper.ReasonUnknownFlow)
	codeUnknownGroup     code = "unknown-group"
	codeUnknownBundle         = code(shaper.ReasonUnknownBundle)
	codeTooManyBundles   code = "too-many-bundles"
	codeMethod           code = "method-not-allowed"
	codeConflict         code = "conflicting-state"
	codeNoFlows          code = "no-flows"
	codeNoGroups         code = "no-groups"
	codeTooLarge         code = "too-large"
	codeTooSlow          code = "too-slow"
	codeMediaType        code = "unsupported-media-type"
	codeURLNotAllowed    code = "url-not-allowed"
	codeIDReused              = code(shaper.ReasonIDReused)
	codeIDTaken               = code(shaper.ReasonIDTaken)
	codeIDEnded               = code(shaper.ReasonIDEnded)
	codeFlowDisabled          = code(shaper.ReasonFlowDisabled)
	codeCostImpossible        = code(shaper.ReasonImpossible)
	codeLimitExceeded         = code(shaper.ReasonLimit)
	codeBucketFull            = code(shaper.ReasonBucketFull)
	codeScheduledFull         = code(shaper.ReasonScheduledFull)
	codeFlowFull              = code(shaper.ReasonFlowFull)
	codeGroupFull             = code(shaper.ReasonGroupFull)
	codeTooManyFlows          = code(shaper.ReasonTooManyFlows)
	codeDeadFull              = code(shaper.ReasonDeadFull)
	codeShed                  = code(shaper.ReasonShed)
	codeWaitTooLong           = code(shaper.ReasonWaitTooLong)
	codeIdentityMissing       = code(shaper.ReasonIdentity)
	codeInternal         code = "internal"
	codeOverloaded            = code(shaper.ReasonOverloaded)
	codeLocalFault       code = "local-fault"
	codeStoreUnavailable code = "store-unavailable"
	codeStoreFull        code = "store-full"
	codeStoreForbidden   code = "store-forbidden"
)

// kinds is every code with its status and title.
var kinds = map[code]struct {
	status int
	title  string
}{
	codeInvalid:          {http.StatusBadRequest, "The request is not valid"},
	codeIdentityMissing:  {http.StatusBadRequest, "A limit counts by something that the request does not have"},
	codeUnauthorized:     {http.StatusUnauthorized, "An API key is needed"},
	codeForbidden:        {http.StatusForbidden, "The caller may not do this"},
	codeUnknownRoute:     {http.StatusNotFound, "There is nothing at this path"},
	codeUnknownBucket:    {http.StatusNotFound, "There is no such bucket"},
	codeUnknownJob:       {http.StatusNotFound, "There is no such job"},
	codeNoResult:         {http.StatusNotFound, "There is no result of the job"},
	codeNotEnded:         {http.StatusNotFound, "The job has not ended yet"},
	codeNoProxy:          {http.StatusNotFound, "The bucket is no proxy"},
	codeUnknownModel:     {http.StatusNotFound, "No bucket takes this model"},
	codeAnswerNotKept:    {http.StatusConflict, "The answer to this request is not kept any more"},
	codeNoAnswer:         {http.StatusBadGateway, "The API did not answer"},
	codeResultTooLarge:   {http.StatusBadGateway, "The answer of the API is too large"},
	codeNotInTime:        {http.StatusGatewayTimeout, "There was no answer in time"},
	codeUnknownLimit:     {http.StatusNotFound, "There is no such limit"},
	codeUnknownPool:      {http.StatusNotFound, "There is no such pool"},
	codeUnknownSchedule:  {http.StatusNotFound, "There is no such schedule"},
	codeScheduleConflict: {http.StatusConflict, "Another schedule is in the way"},
	codeUnknownFlow:      {http.StatusNotFound, "There is no such flow now"},
	codeUnknownBundle:    {http.StatusNotFound, "There is no such bundle"},
	codeTooManyBundles:   {http.StatusConflict, "The bucket has too many bundles"},
	codeUnknownGroup:     {http.StatusNotFound, "There is no such group now"},
	codeMethod:           {http.StatusMethodNotAllowed, "The path does not take this method"},
	codeConflict:         {http.StatusConflict, "The state of the job does not allow this"},
	codeNoFlows:          {http.StatusConflict, "The bucket has no flows"},
	codeNoGroups:         {http.StatusConflict, "The bucket has no groups"},
	codeIDTaken:          {http.StatusConflict, "The id belongs to another caller's job"},
	codeIDEnded:          {http.StatusConflict, "The job of this id ended undelivered"},
	codeFlowDisabled:     {http.StatusConflict, "The flow is disabled"},
	codeTooSlow:          {http.StatusRequestTimeout, "The request came too slowly"},
	codeTooLarge:         {http.StatusRequestEntityTooLarge, "The request is too large"},
	codeMediaType:        {http.StatusUnsupportedMediaType, "The content type is not supported"},
	codeURLNotAllowed:    {http.StatusUnprocessableEntity, "Jobs of this bucket may not name a URL"},
	codeIDReused:         {http.StatusUnprocessableEntity, "Another job has this id"},
	codeCostImpossible:   {http.StatusUnprocessableEntity, "The cost can never be met"},
	codeLimitExceeded:    {http.StatusTooManyRequests, "Quota Exceeded"},
	codeBucketFull:       {http.StatusTooManyRequests, "The bucket is full"},
	codeScheduledFull:    {http.StatusTooManyRequests, "The bucket holds too many jobs for later"},
	codeFlowFull:         {http.StatusTooManyRequests, "The flow is full"},
	codeGroupFull:        {http.StatusTooManyRequests, "The group is full"},
	codeTooManyFlows:     {http.StatusTooManyRequests, "The bucket has too many flows or groups"},
	codeDeadFull:         {http.StatusTooManyRequests, "The bucket has too many dead letters"},
	codeShed:             {http.StatusTooManyRequests, "The bucket is too full for jobs of this priority"},
	codeWaitTooLong:      {http.StatusTooManyRequests, "The job would have to wait too long"},
	codeThrottled:        {http.StatusTooManyRequests, "The API asks for fewer requests"},
	codeInternal:         {http.StatusInternalServerError, "Something went wrong here"},
	codeOverloaded:       {http.StatusServiceUnavailable, "The server has too much to do"},
	codeLocalFault:       {http.StatusServiceUnavailable, "The host of this server cannot connect"},
	codeStoreUnavailable: {http.StatusServiceUnavailable, "Redis is unavailable"},
	codeStoreFull:        {http.StatusServiceUnavailable, "Redis is out of memory"},
	codeStoreForbidden:   {http.StatusServiceUnavailable, "Redis refuses this server"},
}

const (
	typeBase      = "https://tundish.io/problems/"
	retryStore    = 1  // seconds
	retryFull     = 10 // seconds: an operator has to make room, or jobs have to be sent
	retryLocal    = 5  // seconds: a host that cannot connect tries again after 1 s to 15 s
	retryCalm     = 1  // seconds: for an API that asks for fewer requests and names no time
	maxFieldFault = 20 // faults shown at most
)

// fault is the part of a problem that a batch repeats for each job.
type fault struct {
	Status           int          `json:"status"`
	Code             code         `json:"code"`
	Detail           string       `json:"detail,omitempty"`
	Errors           []fieldFault `json:"errors,omitempty"`
	ViolatedPolicies []string     `json:"violated-policies,omitempty"`
	RetryAfter       int64        `json:"retry_after,omitempty"` // seconds
}

type fieldFault struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Error makes a fault an error.
func (f *fault) Error() string { return string(f.Code) + ": " + f.Detail }

func newFault(c code, format string, args ...any) *fault {
	return &fault{Status: kinds[c].status, Code: c, Detail: fmt.Sprintf(format, args...)}
}

// invalid returns the fault of a job's invalid fields.
func invalid(faults []*shaper.FieldError) *fault {
	f := newFault(codeInvalid, "%s", faults[0])
	if len(faults) > 1 {
		f.Detail = fmt.Sprintf("%d fields are not valid, see errors", len(faults))
	}
	for _, fieldError := range faults[:min(len(faults), maxFieldFault)] {
		f.Errors = append(f.Errors, fieldFault{fieldError.Field, fieldError.Reason})
	}
	return f
}

// refused returns the fault of a refusal.
func refused(refusal *shaper.Refusal) *fault {
	f := newFault(code(refusal.Reason), "%s", refusal.Detail)
	f.ViolatedPolicies = refusal.Limits
	if refusal.RetryAfter > 0 {
		f.RetryAfter = admission.RetrySeconds(refusal.Return())
	}
	return f
}

// problem is an error as the client sees it.
type problem struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	*fault
	Instance  string       `json:"instance"`
	RequestID string       `json:"request_id,omitempty"`
	State     shaper.State `json:"state,omitempty"`   // of the job, in a conflict
	Purged    int64        `json:"purged,omitempty"`  // of a purge that failed half way: the jobs that it has dropped
	Moved     int          `json:"moved,omitempty"`   // of a redrive that failed half way
	Dropped   int          `json:"dropped,omitempty"` // dead letters dropped before a drop failed
	IDs       []string     `json:"ids,omitempty"`     // of jobs whose outcome is unknown: send them again under these ids
	*tally                 // of a batch without an admitted job

	// For clients of the proxy: clients of many APIs expect one of the two, and treat an error without them as a success.
	Message   string      `json:"message,omitempty"`
	ForClient *proxyFault `json:"error,omitempty"`
}

// proxyFault is a fault in the form that most APIs have.
type proxyFault struct {
	Type    string `json:"type"`
	Code    code   `json:"code"`
	Message string `json:"message"`

	CausedBy causedBy `json:"caused_by"` // the client of Elasticsearch shows no other text
}

type causedBy struct {
	Type   code   `json:"type"`
	Reason string `json:"reason"`
}

func (f *fault) problem(r *http.Request) *problem {
	p := &problem{
		Type: typeBase + string(f.Code), Title: kinds[f.Code].title, fault: f,
		Instance: r.URL.EscapedPath(), RequestID: requestID(r),
	}
	if f.Code == codeLimitExceeded {
		p.Type = httplimit.TypeQuotaExceeded
	}
	if strings.HasPrefix(p.Instance, proxyPath) {
		p.Message = cmp.Or(f.Detail, p.Title)
		p.ForClient = &proxyFault{Type: faultType, Code: f.Code, Message: p.Message, CausedBy: causedBy{f.Code, p.Message}}
	}
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	contentType := "application/problem+json"
	if p.ForClient != nil {
		contentType = "application/json" // the clients of many APIs read no other
	}
	write(w, p.Status, contentType, p)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, status, "application/json", body)
}

// write encodes the body first, so that no status is sent without its body. A body that cannot
// be encoded is a 500.
func write(w http.ResponseWriter, status int, contentType string, body any) {
	text, err := encode(body)
	if err != nil {
		unwritable(err).write(w)
		return
	}
	writeEncoded(w, status, contentType, text)
}

func encode(body any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return text.Bytes(), err
}

// unwritable is the problem of a body that cannot be encoded.
func unwritable(err error) *problem {
	f := newFault(codeInternal, "the request may have been carried out, but its answer cannot be written as JSON: %v", err)
	return &problem{Type: typeBase + string(f.Code), Title: kinds[f.Code].title, fault: f}
}

func writeEncoded(w http.ResponseWriter, status int, contentType string, text []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // lingering needs it
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec,nolintlint // JSON, with its type; fails only when the client is gone. Gosec finds it only without cached facts
}

// fieldErrors lists the faults in a tree of joined errors, in order.
func fieldErrors(err error) []*shaper.FieldError {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*shaper.FieldError
		for _, one := range joined.Unwrap() {
			all = append(all, fieldErrors(one)...)
		}
		return all
	}
	if f, ok := errors.AsType[*shaper.FieldError](err); ok {
		return []*shaper.FieldError{f}
	}
	return []*shaper.FieldError{{Field: bodyField, Reason: err.Error()}}
}

// ProblemCode is a code of a problem, for the docs.
type ProblemCode struct {
	Code   string
	Status int
	Title  string
}

// ProblemCodes returns every code, by status and name.
func ProblemCodes() []ProblemCode {
	list := make([]ProblemCode, 0, len(kinds))
	for c, kind := range kinds {
		list = append(list, ProblemCode{string(c), kind.status, kind.title})
	}
	slices.SortFunc(list, func(a, b ProblemCode) int { return cmp.Or(a.Status-b.Status, strings.Compare(a.Code, b.Code)) })
	return list
}
