package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// visit is a request to a proxy route, from its arrival to the last byte of its response.
type visit struct {
	*producer
	RouteBucket

	w       http.ResponseWriter
	r       *http.Request
	began   time.Time
	timeout time.Duration // that the client waits until its request is sent
	address string        // path and query of the API: see addressOf
	body    *llm.Body

	asked, sent string // the model of the request, and the fallback's model in its place; "" if it is the same
	ask         *llm.Ask
}

func (v *visit) left() time.Duration { return v.timeout - time.Since(v.began) }

// choose takes the first bucket of the route that takes the model and that the key of the client may use.
func (v *visit) choose(buckets []RouteBucket, model string) *fault {
	var lacks *fault
	for _, b := range buckets {
		if model != "" && !b.API.Worker.Takes(model) {
			continue
		}
		if f := v.mayUse(b.API.Bucket); f != nil {
			lacks = f
			continue
		}
		v.RouteBucket = b
		return nil
	}
	if lacks != nil {
		return lacks
	}
	return newFault(codeUnknownModel, "no bucket of this route takes the model %q", model)
}

// mayUse returns the right that the key of the client lacks to use a bucket.
func (v *visit) mayUse(bucket string) *fault {
	if key := keyOf(v.r); key != nil {
		return authorize(key, roles(apikey.RoleEnqueue), bucket)
	}
	return nil
}

// job builds the job of a request. The payload stays in this process.
func (v *visit) job() (shaper.Job, *fault) {
	v.ask = v.API.Worker.AskOf(v.address, v.body)
	v.ask.Asked = v.asked
	v.ask.Memory = func(n int) bool { return usageOf(v.r).takeBody(int64(n)) }
	settings, err := v.jobs.Bucket(v.API.Bucket)
	if err != nil {
		return shaper.Job{}, newFault(codeUnknownBucket, "there is no bucket %q", v.API.Bucket)
	}
	sender := v.sender(v.r, v.API.Bucket)
	headers := v.access.forwarded(v.r.Header, v.API.Worker.Credentials())
	job := shaper.Job{
		Bucket: v.API.Bucket, Method: v.r.Method, URL: v.address, Headers: headers, Payload: v.ask.Body, Units: v.ask.Units, Priority: v.Priority,
		Caller: sender.caller, Identity: sender.Identity,
	}
	v.timeout = clientWait(v.r.Header, v.API.Wait)
	job.MaxWait = max(v.left(), time.Microsecond).Truncate(time.Microsecond)
	job.ExpiresIn = job.MaxWait + llm.ExpiryMargin
	if v.Fallback != nil {
		job.MaxWait = min(job.MaxWait, v.FallbackAfter)
	}
	light := job
	light.Payload = nil
	_, _, err = settings.Check(&light)
	if faults := fieldErrors(errors.Join(err, v.API.Worker.CheckCall(&job))); len(faults) > 0 {
		return job, invalid(onePerField(faults))
	}
	return job, bound(v.r, &settings, &light)
}

// fallBack builds the job again for the fallback bucket, which gets the request if it would wait too long in the first one. It reports whether there is
// a fallback for this model, or the model that it is mapped to, and for this client.
func (v *visit) fallBack() (job shaper.Job, isThere bool) {
	to := v.Fallback
	if to == nil || v.mayUse(to.API.Bucket) != nil {
		return job, false
	}
	address, body, asked := v.address, v.body, v.body.Model(v.address)
	sent, isMapped := v.FallbackModels[asked]
	if isMapped {
		if address, body, isMapped = body.WithModel(address, sent); !isMapped {
			return job, false
		}
		v.asked, v.sent = asked, sent
	}
	if model := cmp.Or(sent, asked); model != "" && !to.API.Worker.Takes(model) {
		return job, false
	}
	v.RouteBucket, v.address, v.body = *to, address, body
	job, f := v.job()
	return job, f == nil
}
