package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// bucketOrders are the orders of buckets, by name. Orders by numbers have the largest first.
var bucketOrders = map[string]func(a, b *opsview.Bucket) int{
	"name":      func(a, b *opsview.Bucket) int { return cmp.Compare(a.Name, b.Name) },
	"waiting":   func(a, b *opsview.Bucket) int { return cmp.Compare(b.Unfinished-b.InFlight, a.Unfinished-a.InFlight) },
	"in_flight": func(a, b *opsview.Bucket) int { return cmp.Compare(b.InFlight, a.InFlight) },
	"dead":      func(a, b *opsview.Bucket) int { return cmp.Compare(b.Dead, a.Dead) },
	"oldest":    func(a, b *opsview.Bucket) int { return cmp.Compare(b.OldestAge, a.OldestAge) },
	"notes":     func(a, b *opsview.Bucket) int { return min(len(b.Notes), 1) - min(len(a.Notes), 1) },
}

// listBuckets lists buckets of the caller's key.
func (o *ops) listBuckets(r *http.Request, in *BucketsQuery) (*BucketList, error) {
	order, known := bucketOrders[in.Sort]
	if in.Sort != "" && !known {
		return nil, invalid([]*shaper.FieldError{{Field: "sort", Reason: "want name, waiting, in_flight, dead, oldest or notes"}})
	}
	from, err := strconv.Atoi(cmp.Or(in.Cursor, "0"))
	if err != nil || from < 0 {
		return nil, invalid([]*shaper.FieldError{{Field: "cursor", Reason: "want the next of an answer"}})
	}
	names, err := o.names(r.Context())
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return isForeign(r, name) || !strings.Contains(name, in.Q) })
	views, err := o.bucketViews(r.Context(), names...)
	if err != nil {
		return nil, err
	}
	if order != nil {
		slices.SortStableFunc(views, order)
	}
	list := &BucketList{Buckets: views}
	if in.Limit == 0 {
		list.Buckets = views[min(from, len(views)):]
		return list, nil
	}
	list.Totals = totalsOf(views)
	end := min(from+in.Limit, len(views))
	list.Buckets = views[min(from, end):end]
	if end < len(views) {
		list.Next = strconv.Itoa(end)
	}
	return list, nil
}

func totalsOf(views []*opsview.Bucket) *BucketTotals {
	t := &BucketTotals{Buckets: int64(len(views))}
	for _, v := range views {
		t.Unfinished, t.InFlight, t.Dead = t.Unfinished+v.Unfinished, t.InFlight+v.InFlight, t.Dead+v.Dead
		t.Noted += int64(min(len(v.Notes), 1))
	}
	return t
}
