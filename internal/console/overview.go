package console

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// overviewPage are buckets, problems first.
type overviewPage struct {
	Query, Sort string
	Buckets     []bucketRow
	Totals      *httpapi.BucketTotals
	Next        string
	Processes   int
	Workers     int // processes that deliver
	Busy        int
	Notices     []string // of processes and of Redis
}

type bucketRow struct {
	*opsview.Bucket

	Seen   *httpapi.Traffic // nil: no process reports it
	Minute []int64
}

const bucketsOnPage = 100

func overview(v *visit) {
	in := httpapi.BucketsQuery{Q: v.r.FormValue("q"), Sort: v.r.FormValue("sort"), Limit: bucketsOnPage, Cursor: v.r.FormValue("cursor")}
	page := overviewPage{Query: in.Q, Sort: in.Sort}
	if in.Sort == "" {
		in.Sort = "notes"
	}
	list, err := call(v, httpapi.ListBuckets, in)
	if err != nil {
		v.fail(err)
		return
	}
	seen, err := call(v, httpapi.ShowFleet, httpapi.FleetQuery{Buckets: true})
	if err != nil {
		v.fail(err)
		return
	}
	page.Totals, page.Next, page.Processes = list.Totals, list.Next, len(seen.Processes)
	page.Notices = fleet.Notices(seen.Processes)
	for i := range seen.Processes {
		p := &seen.Processes[i]
		if page.Busy += p.Busy; p.Works {
			page.Workers++
		}
	}
	for _, b := range list.Buckets {
		row := bucketRow{Bucket: b, Seen: seen.Buckets[b.Name]}
		if row.Seen != nil {
			row.Minute = row.Seen.Minute
		}
		page.Buckets = append(page.Buckets, row)
	}
	v.render(http.StatusOK, "overview", "Buckets", &page)
}
