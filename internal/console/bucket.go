package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// bucketContent is one bucket.
type bucketContent struct {
	*opsview.Bucket

	Seen    *httpapi.Traffic
	Late    float64 // of the process that is worst, how late 99 of 100 departures of the last minute were at most, in seconds
	PerSec  float64 // its rate in departures a second, for the line in the picture
	History []hour
	Flows   []*opsview.Flow // the fullest of those that were read
	Looked  int
	Records []audit.Record
}

// hour sums up an hour of the history.
type hour struct {
	At time.Time
	fleet.Counts

	Departures []int64 // in five minutes each
}

const (
	flowsLooked = 2000
	flowsShown  = 10
)

func bucketPage(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	page := bucketContent{}
	var err error
	if page.Bucket, err = call(v, httpapi.ShowBucket, name); err != nil {
		v.fail(err)
		return
	}
	// The rest is optional: a page without it is better than none.
	if seen, err := call(v, httpapi.ShowFleet, httpapi.FleetQuery{Buckets: true}); err == nil {
		page.Seen = seen.Buckets[name.Bucket]
		for i := range seen.Processes {
			page.Late = max(page.Late, seen.Processes[i].P99Lateness)
		}
	}
	if history, err := call(v, httpapi.ShowHistory, name); err == nil {
		page.History = hoursOf(history.Points)
	}
	if page.Bucket.Flows != nil {
		in := httpapi.FlowQuery{BucketName: name, Sort: "waiting", Look: flowsLooked, PartPage: httpapi.PartPage{Limit: flowsShown}}
		if flows, err := call(v, httpapi.ListFlows, in); err == nil {
			page.Flows, page.Looked = flows.Flows, flows.Looked
		}
	}
	const few = 5
	if records, err := call(v, httpapi.ShowAudit, httpapi.AuditQuery{Bucket: name.Bucket, Limit: few}); err == nil {
		page.Records = records.Records
	}
	page.PerSec = perSecond(page.Rate)
	v.render(http.StatusOK, "bucket", name.Bucket, &page)
}

// hoursOf sums up the points of a history by hour, the latest first, without hours that have no counts.
func hoursOf(points []fleet.Point) (hours []hour) {
	for i := len(points) - 1; i >= 0; i-- {
		p := points[i]
		at := p.At.Truncate(time.Hour)
		if n := len(hours); n == 0 || !hours[n-1].At.Equal(at) {
			hours = append(hours, hour{At: at})
		}
		h := &hours[len(hours)-1]
		h.Arrived, h.Refused, h.Departed, h.Failed = h.Arrived+p.Arrived, h.Refused+p.Refused, h.Departed+p.Departed, h.Failed+p.Failed
		h.Departures = append([]int64{p.Departed}, h.Departures...)
	}
	counted := hours[:0]
	for _, h := range hours {
		if h.Counts != (fleet.Counts{}) {
			counted = append(counted, h)
		}
	}
	return counted
}

// changeBucket carries out an action on a bucket, and shows it again.
func changeBucket(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	action := v.r.PathValue("action")
	var after *opsview.Bucket
	var err error
	switch action {
	case "pause":
		after, err = call(v, httpapi.PauseBucket, httpapi.BucketPause{BucketName: name, PauseReason: httpapi.PauseReason{Reason: v.r.PostFormValue("reason")}})
	case "resume":
		after, err = call(v, httpapi.ResumeBucket, name)
	case "release":
		after, err = call(v, httpapi.ReleaseBucket, httpapi.BucketRelease{BucketName: name, AllFlows: v.r.PostFormValue("flows") == "all"})
	case "retry":
		retryNow(v, httpapi.JobRetry{BucketName: name, All: true}, "../../"+url.PathEscape(name.Bucket))
		return
	case "drain":
		after, err = call(v, httpapi.DrainBucket, httpapi.BucketDrain{BucketName: name, UntilEmpty: true})
	case "stop-drain":
		after, err = call(v, httpapi.StopDrain, name)
	case "set":
		var settings []byte
		if settings, err = json.Marshal(map[string]string{"rate": v.r.PostFormValue("rate")}); err == nil {
			after, err = call(v, httpapi.SetBucket, httpapi.BucketSettings{BucketName: name, Settings: settings})
		}
	case "reset":
		after, err = call(v, httpapi.ResetBucket, httpapi.BucketResets{BucketName: name})
	default:
		err = errNoAction
	}
	v.acted("../../"+url.PathEscape(name.Bucket), action, err, func() bool { return isChange(after.Changed) })
}

// askPurge shows what a purge would drop, and asks for the bucket's name.
func askPurge(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	count, err := call(v, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: name, PurgeRequest: httpapi.PurgeRequest{DryRun: true}})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "purge", "Purge "+name.Bucket, count)
}

// purge drops the waiting jobs of a bucket, whose name is given once more.
func purge(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	var after *opsview.Purge
	confirm := v.r.PostFormValue("confirm")
	after, err := call(v, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: name, PurgeRequest: httpapi.PurgeRequest{Confirm: &confirm, KeepLater: v.r.PostFormValue("keep") != ""}})
	v.acted("../"+url.PathEscape(name.Bucket), "purge", err, func() bool { return after.Purged+after.Left > 0 })
}
