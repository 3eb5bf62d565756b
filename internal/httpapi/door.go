package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// maxDoorRequest bounds the body of a request, as Anthropic does.
const maxDoorRequest = 32 << 20

// door serves a request to a door.
func (p *producer) door(w http.ResponseWriter, r *http.Request, buckets []DoorBucket) {
	v := &visit{producer: p, w: w, r: r, began: time.Now(), DoorBucket: buckets[0]}
	defer v.end()
	if r.Header.Get("Upgrade") != "" {
		v.refuse(invalid([]*shaper.FieldError{{Field: "Upgrade", Reason: "is not possible here: a request has one answer"}}))
		return
	}
	body, f := readBody(w, r, maxDoorRequest, "a door takes no larger ones")
	if f == nil {
		f = v.choose(buckets, llm.ModelOf(body))
	}
	var job shaper.Job
	if f == nil {
		v.ask = v.Worker.Ask(addressOf(r), body)
		job, f = v.job()
	}
	if f == nil && !usageOf(r).mayWait() {
		f = usageOf(r).of.tooMany("wait for answers")
	}
	if f != nil {
		v.refuse(f)
		return
	}
	v.serve(job)
}

// addressOf is what the API is asked: a path and a query below its base URL.
func addressOf(r *http.Request) string {
	asked, _ := r.Context().Value(proxiedKey{}).(proxied)
	return asked.address
}

// choose takes the first bucket of the door that takes the model and that the key of the client may use.
func (v *visit) choose(buckets []DoorBucket, model string) *fault {
	var lacks *fault
	for _, b := range buckets {
		if model != "" && !b.Worker.Takes(model) {
			continue
		}
		if key := keyOf(v.r); key != nil {
			if f := authorize(key, roles(apikey.RoleEnqueue), b.Name); f != nil {
				lacks = f
				continue
			}
		}
		v.DoorBucket = b
		return nil
	}
	if lacks != nil {
		return lacks
	}
	return newFault(codeUnknownModel, "no bucket of this door takes the model %q", model)
}

// job makes the job of a request. Its payload stays here.
func (v *visit) job() (shaper.Job, *fault) {
	settings, err := v.jobs.Bucket(v.Name)
	if err != nil {
		return shaper.Job{}, newFault(codeUnknownBucket, "there is no bucket %q", v.Name)
	}
	sender := v.sender(v.r, v.Name)
	headers := forwarded(v.r.Header, v.Credentials)
	delete(headers, "Accept-Encoding") // the usage is read
	job := shaper.Job{
		Bucket: v.Name, Method: v.r.Method, URL: addressOf(v.r), Headers: headers, Payload: v.ask.Body, Units: v.ask.Units, Priority: v.Priority,
		Caller: sender.caller, Identity: sender.Identity,
	}
	v.timeout = v.Timeout
	if seconds, err := strconv.ParseFloat(v.r.Header.Get("X-Stainless-Timeout"), 64); err == nil && seconds > 0 { // as the clients of both providers say how long they wait
		v.timeout = min(v.timeout, time.Duration(min(seconds, v.Timeout.Seconds())*float64(time.Second)))
	}
	v.renew(&job)
	light := job
	light.Payload = nil
	_, _, err = settings.Check(&light)
	if faults := fieldErrors(errors.Join(err, v.Worker.CheckCall(&job))); len(faults) > 0 {
		return job, invalid(onePerField(faults))
	}
	return job, bound(v.r, &settings, &light)
}

// renew says how long the client waits from now on.
func (v *visit) renew(job *shaper.Job) {
	job.MaxWait = max(v.left(), time.Microsecond).Truncate(time.Microsecond)
	job.ExpiresIn = job.MaxWait + expiryMargin
}
