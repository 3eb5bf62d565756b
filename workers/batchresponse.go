package workers

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/shaper"
)

// Outcomes returns the outcome of each job of a batch, by the outcome of its request. The response is for all jobs, unless it is a 2xx with a status for
// each: JSON of the form {"results":[{"id":…,"status":…}]}, the items that a rule points at, or the items of a 207 or of "errors": true.
//
// The policy then judges each status as if it were the response to the job alone. The downstream is not slowed, because it accepted the request. The
// exception is an item that asks for less in a response of the API's own form. A job that the results don't name, or name twice, is retried. All jobs
// are retried if the response claims to be JSON and cannot be parsed. Faults of the response become the batch's.
func (p Policy) Outcomes(batch *shaper.Batch, request shaper.Outcome, now time.Time) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(batch.Attempts))
	results, isOfAPI, err := p.resultsOf(batch, request)
	for i, a := range batch.Attempts {
		outcomes[i] = request
		var said *itemResult
		switch {
		case results != nil:
			said = results.ofJobs[a.ID]
			outcomes[i] = p.outcomeOf(a, said, &request, now)
		case err != nil:
			outcomes[i] = unnamed(err.Error())
			outcomes[i].Status = request.Status
		}
		outcomes[i].Answer = answerTo(a, request.Answer, said, outcomes[i].Status)
	}
	if results != nil {
		err = results.fault()
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

// unnamed returns the outcome of a job that was sent and that the response does not name.
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
	if asksForLess(said.status) { // the header's time is for these items
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

// answerTo returns a job's part of the response, if it wants one: its own result, or the whole.
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

// resultsOf reads the results of the jobs in a response. The results are nil if the response has none, and err says why they cannot be read. isOfAPI
// says that the form is not our own.
func (p Policy) resultsOf(batch *shaper.Batch, request shaper.Outcome) (results *batchResults, isOfAPI bool, err error) {
	answer := request.Answer
	if request.Result != shaper.ResultDone || answer == nil {
		return nil, false, nil
	}
	r := Response{Status: answer.Status, Header: answer.Headers, Body: answer.Body, OfBatch: true}
	rule := p.Rules.first(&r)
	switch {
	case rule != nil && rule.Outcome == RuleDone:
		return nil, false, nil
	case rule != nil && rule.Outcome == RuleItems:
		results = resultsFor(batch)
		results.readRule(batch, rule, answer.Body)
		return results, true, nil
	}
	results, err = ownResults(batch, answer)
	if results == nil && err == nil && r.isPartial() {
		results = resultsFor(batch)
		results.readInOrder(batch, func(add func(text []byte)) error { return eachPositioned(answer.Body, add) }, onlyStatusIn)
		return results, true, nil
	}
	return results, false, err
}

// ownResults reads {"results":[{"id":…,"status":…}]}.
func ownResults(batch *shaper.Batch, answer *shaper.Answer) (*batchResults, error) {
	text := bytes.TrimSpace(answer.Body)
	if len(text) == 0 {
		return nil, nil //nolint:nilnil // it says nothing of the jobs
	}
	if !jsonscan.Valid(text) {
		if !isJSONType(http.Header(answer.Headers).Get("Content-Type")) {
			return nil, nil //nolint:nilnil // as above
		}
		reason := "it is not valid JSON"
		if answer.Cut {
			reason = fmt.Sprintf("it is longer than %d bytes, or it broke off", len(answer.Body))
		}
		return nil, fmt.Errorf("the answer to the batch cannot be read, so all its jobs are tried again: %s", reason)
	}
	var list []byte
	jsonscan.Members(text, func(name, value []byte) { // any other JSON is a response to all
		if jsonscan.Is(name, "results") {
			list = value
		}
	})
	switch {
	case list == nil || list[0] == 'n':
		return nil, nil //nolint:nilnil // as above
	case list[0] != '[':
		return nil, errNoArray
	}
	results, nth := resultsFor(batch), 0
	jsonscan.Elements(list, func(item []byte) bool {
		nth++
		id, status, ok := readItem(item)
		if ok {
			results.add(id, itemResult{nth: nth, status: status, text: item})
		} else if results.err == nil {
			results.fail(fmt.Errorf(`item %d of the results in the answer to the batch has no id and status: want {"id":"…","status":200}`, nth))
		}
		return true
	})
	return results, nil
}

var errNoArray = errors.New(`the answer to the batch has "results" that are no array, so all its jobs are tried again: want [{"id":"…","status":200}]`)

// readItem reads the result of a job in an item; ok is false if it names no job, or its status is no whole number.
func readItem(item []byte) (id string, status int, ok bool) {
	ok = true
	jsonscan.Members(item, func(name, value []byte) {
		switch {
		case value[0] == 'n': // as if it was not there
		case jsonscan.Is(name, "id"):
			id, _ = jsonscan.Text(value, shaper.MaxIDBytes+1)
		case jsonscan.Is(name, "status"):
			var err error
			status, err = strconv.Atoi(string(value[:min(len(value), maxHeaderValue)]))
			ok = ok && err == nil
		}
	})
	return id, status, ok && id != ""
}
