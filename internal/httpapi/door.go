package httpapi

import (
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// maxDoorRequest bounds the body of a request, as Anthropic does.
const maxDoorRequest = 32 << 20

// door serves a request to a proxy route.
func (p *producer) door(w http.ResponseWriter, r *http.Request, buckets []DoorBucket) {
	v := &visit{producer: p, w: w, r: r, began: time.Now(), DoorBucket: buckets[0], address: addressOf(r)}
	if r.Header.Get("Upgrade") != "" {
		invalid([]*shaper.FieldError{{Field: "Upgrade", Reason: "is not possible here: a request has one answer"}}).write(w, r)
		return
	}
	body, f := readBody(w, r, maxDoorRequest, "a door takes no larger ones")
	if f == nil {
		v.body = llm.ReadBody(body)
		f = v.choose(buckets, v.body.Model(v.address))
	}
	var job shaper.Job
	if f == nil {
		job, f = v.job()
	}
	if f == nil && !usageOf(r).mayWait() {
		f = usageOf(r).of.tooMany("wait for answers")
	}
	if f != nil {
		f.write(w, r)
		return
	}
	v.serve(job)
}
