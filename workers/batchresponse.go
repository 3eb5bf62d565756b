package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Outcomes says how a batch ended for each of its jobs, by the outcome of its request. The answer is for all jobs, unless it is a 2xx with
// a status for each: JSON of the form {"results":[{"id":…,"status":…}]}, the items that a rule points at, or those of a 207 or of
// "errors": true. Then each status is judged by the policy, as if it were the answer to the job
// alone, but says nothing of the downstream: the request was accepted. Only items that ask for less slow it, where the form of the response
// is the API's. A job that the results do not name, or name twice, is tried
// again, and so are all if the answer says that it is JSON and cannot be parsed. Faults of the answer become the batch's.
func (p Policy) Outcomes(batch *shaper.Batch, request shaper.Outcome, now time.Time) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(batch.Attempts))
	results, hasResults, isOfAPI, err := p.resultsOf(batch, request)
	for i, a := range batch.Attempts {
		outcomes[i] = request
		switch {
		case hasResults:
			outcomes[i] = p.outcomeOf(a, results[a.ID], &request, now)
		case err != nil:
			outcomes[i] = unnamed(err.Error())
			outcomes[i].Status = request.Status
		}
		outcomes[i].Answer = answerTo(a, request.Answer, results[a.ID], outcomes[i].Status)
		delete(results, a.ID)
	}
	if hasResults && len(results) > 0 {
		err = firstOf(err, foreign(results))
	}
	if isOfAPI && slices.ContainsFunc(outcomes, asksForLessOf) {
		for i := range outcomes {
			outcomes[i].Signal = shaper.SignalNone
			if asksForLessOf(outcomes[i]) {
				outcomes[i].Signal = shaper.SignalThrottled
			}
		}
	}
	batch.Fault = err
	return outcomes
}

func asksForLessOf(outcome shaper.Outcome) bool {
	return outcome.Result == shaper.ResultHeld || asksForLess(outcome.Status)
}

// unnamed is the outcome of a job that was sent and that the answer does not name.
func unnamed(detail string) shaper.Outcome {
	outcome := shaper.Retry(ReasonBatchAnswer, Snippet([]byte(detail)))
	outcome.Signal = shaper.SignalAccepted
	return outcome
}

func (p Policy) outcomeOf(a *shaper.Attempt, said *itemResult, request *shaper.Outcome, now time.Time) shaper.Outcome {
	if said == nil {
		return unnamed(fmt.Sprintf("the answer to the batch has no result for job %q: it is tried again", a.ID))
	}
	if said.fault != nil {
		return unnamed(said.fault.Error())
	}
	item := Response{Status: said.status, Header: http.Header{}, At: now}
	if asksForLess(said.status) { // the time that the header names is that of these items
		item.Header = request.Answer.Headers
	}
	outcome := p.byStatus(&item)
	outcome.Gone = false
	if outcome.Result != shaper.ResultHeld {
		outcome.Signal = shaper.SignalAccepted
	}
	if outcome.Result == shaper.ResultDone {
		outcome.RetryAfter = request.RetryAfter
	}
	outcome.Body = Snippet(said.text)
	return outcome
}

// answerTo is what a job gets of the answer, if it wants some: its own result, or the whole.
func answerTo(a *shaper.Attempt, whole *shaper.Answer, said *itemResult, status int) *shaper.Answer {
	if whole == nil || a.AnswerBytes == 0 {
		return nil
	}
	own := *whole
	if said != nil && said.fault == nil {
		own.Status, own.Body, own.Cut = status, said.text, false
	}
	if int64(len(own.Body)) > a.AnswerBytes {
		own.Body, own.Cut = own.Body[:a.AnswerBytes], true
	}
	return &own
}

// resultsOf reads what a response says of each job, by the ids of jobs. has is false where it says nothing of that, and err is what is
// wrong with it. isOfAPI says that the form is not our own.
func (p Policy) resultsOf(batch *shaper.Batch, request shaper.Outcome) (results map[string]*itemResult, has, isOfAPI bool, err error) {
	answer := request.Answer
	if request.Result != shaper.ResultDone || answer == nil {
		return nil, false, false, nil
	}
	r := Response{Status: answer.Status, Header: answer.Headers, Body: answer.Body, OfBatch: true}
	rule := p.Rules.first(&r)
	switch {
	case rule != nil && rule.Outcome == RuleDone:
		return nil, false, false, nil
	case rule != nil && rule.Outcome == RuleItems:
		items, err := rule.itemsIn(answer.Body)
		results, err = byJob(batch, items, rule.ItemID != "", err)
		return results, true, true, err
	}
	results, has, err = ownResults(answer)
	if !has && err == nil && r.isPartial() {
		items, err := positioned(answer.Body)
		results, err = byJob(batch, items, false, err)
		return results, true, true, err
	}
	return results, has, false, err
}

// ownResults reads {"results":[{"id":…,"status":…}]}.
func ownResults(answer *shaper.Answer) (results map[string]*itemResult, has bool, err error) {
	if len(bytes.TrimSpace(answer.Body)) == 0 {
		return nil, false, nil
	}
	saysJSON := isJSONType(http.Header(answer.Headers).Get("Content-Type"))
	var form struct {
		Results *[]json.RawMessage `json:"results"`
	}
	if !json.Valid(answer.Body) {
		if !saysJSON {
			return nil, false, nil
		}
		reason := "it is not valid JSON"
		if answer.Cut {
			reason = fmt.Sprintf("it is longer than %d bytes, or it broke off", len(answer.Body))
		}
		return nil, false, fmt.Errorf("the answer to the batch cannot be read, so all its jobs are tried again: %s", reason)
	}
	if bytes.TrimSpace(answer.Body)[0] != '{' {
		return nil, false, nil // any other JSON is an answer to all
	}
	if err := json.Unmarshal(answer.Body, &form); err != nil {
		return nil, false, errNoArray
	}
	if form.Results == nil {
		return nil, false, nil
	}
	results = make(map[string]*itemResult, len(*form.Results))
	for i, text := range *form.Results {
		id, result := readItem(i+1, text)
		if id == "" {
			err = firstOf(err, result.fault)
			continue
		}
		if before := results[id]; before != nil {
			result.fault = fmt.Errorf("the answer to the batch names job %q twice, as items %d and %d of its results: it is tried again", id, before.nth, result.nth)
		}
		if result.fault != nil {
			err = firstOf(err, result.fault)
		}
		results[id] = result
	}
	return results, true, err
}

var errNoArray = errors.New(`the answer to the batch has "results" that are no array, so all its jobs are tried again: want [{"id":"…","status":200}]`)

func readItem(nth int, text []byte) (id string, result *itemResult) {
	var form struct {
		ID     string `json:"id"`
		Status int    `json:"status"`
	}
	result = &itemResult{nth: nth, text: text}
	err := json.Unmarshal(text, &form)
	switch {
	case err != nil || form.ID == "":
		result.fault = fmt.Errorf(`item %d of the results in the answer to the batch has no id and status: want {"id":"…","status":200}`, nth)
		return "", result
	case form.Status < 200 || form.Status > 599:
		result.fault = fmt.Errorf("item %d of the results in the answer to the batch has status %d for job %q: want 200 to 599; the job is tried again", nth, form.Status, Snippet([]byte(form.ID)))
	}
	result.status = form.Status
	return form.ID, result
}

// foreign is the fault of results whose ids are of no job of the batch. It names the first one.
func foreign(results map[string]*itemResult) error {
	first, id := (*itemResult)(nil), ""
	for name, result := range results {
		if first == nil || result.nth < first.nth {
			first, id = result, name
		}
	}
	return fmt.Errorf("item %d of the results in the answer to the batch names job %q, which is not in the batch; %d items do so", first.nth, Snippet([]byte(id)), len(results))
}
