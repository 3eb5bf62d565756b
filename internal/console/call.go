package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// apiError is an error response of the API.
type apiError struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`
}

func (e *apiError) Error() string {
	text := e.Detail
	for _, one := range e.Errors {
		text += fmt.Sprintf("; %s: %s", one.Field, one.Reason)
	}
	return text
}

// visit is one request of a visitor.
type visit struct {
	*console

	w       http.ResponseWriter
	r       *http.Request
	visitor httpapi.Visitor
	session string
	request string // the id of the requests to the API; "": the page's own
	part    string // the token of the last part of an operation that is made in several
}

// errNoAction is of a form that no page has.
var errNoAction = &apiError{Status: http.StatusNotFound, Detail: "there is no such action"}

const maxAnswer = 64 << 20

// call carries out an operation as the visitor. An error response is an [*apiError].
func call[In, Out any](v *visit, op *httpapi.Operation[In, *Out], in In) (*Out, error) {
	target, body, err := op.Request(&in)
	if err != nil {
		return nil, err
	}
	response, err := v.ask(v.r.Context(), op.Method, target, op.ContentType(), body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.ID, err)
	}
	if response.StatusCode/100 != 2 { //nolint:mnd // a class of statuses
		problem := &apiError{}
		if json.Unmarshal(text, problem) != nil || problem.Status == 0 {
			problem = &apiError{Status: response.StatusCode, Detail: response.Status}
		}
		return nil, problem
	}
	out := new(Out)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("%s: %w", op.ID, err)
	}
	if v.hidesPayloads() {
		withoutPayloads(any(out))
	}
	return out, nil
}

// ask sends a request to the API in this process.
func (v *visit) ask(ctx context.Context, method, target, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(httpapi.AsVisitor(ctx, v.visitor), method, "http://localhost"+target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the API: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	id := v.request
	if id == "" {
		id = v.w.Header().Get("X-Request-Id")
	}
	request.Header.Set("X-Request-Id", id)
	request.Header.Set(httpapi.HeaderPart, v.part)
	response, err := v.host.API.RoundTrip(request)
	if err == nil {
		v.part = response.Header.Get(httpapi.HeaderPart)
	}
	return response, err //nolint:wrapcheck // it returns no error
}

// may reports whether the visitor has one of the roles. It only hides actions that the API would refuse.
func (v *visit) may(roles ...apikey.Role) bool {
	return v.visitor.Key == nil || v.visitor.Key.Has(roles)
}

// hidesPayloads reports whether the visitor must not see payloads.
func (v *visit) hidesPayloads() bool { return v.cfg.HidePayloads && !v.may(apikey.RoleOperate) }

// withoutPayloads removes the payloads from a response of the API. All responses pass through it, so no page has to do it.
func withoutPayloads(answer any) {
	var jobs []*opsview.Job
	switch answer := answer.(type) {
	case *opsview.Job:
		jobs = []*opsview.Job{answer}
	case *opsview.JobPage:
		jobs = answer.Jobs
	case *opsview.DeadPage:
		jobs = answer.Dead
	case *httpapi.FoundJobs:
		jobs = answer.Jobs
	}
	for _, job := range jobs {
		job.Payload, job.PayloadBytes = nil, nil
	}
}
