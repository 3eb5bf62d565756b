package httpapi

import (
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (o *ops) routes() []route {
	return append([]route{
		{"GET", "/v1/buckets", o.listBuckets, roles(apikey.RoleRead)},
		{"GET", "/v1/buckets/{bucket}", o.showBucket, roles(apikey.RoleRead)},
	}, slices.Concat(o.controlRoutes(), o.jobRoutes(), o.poolRoutes(), o.scheduleRoutes(), o.partRoutes(opsview.Flows()), o.partRoutes(opsview.Groups()))...)
}

func (o *ops) controlRoutes() []route {
	admin := roles(apikey.RoleAdmin)
	return []route{
		{"PATCH", "/v1/buckets/{bucket}", setting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides", resetting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides/{setting}", resetting(o.changeBucket), admin},
		{"POST", "/v1/buckets/{bucket}/pause", o.pauseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/resume", o.resumeBucket, admin},
		{"POST", "/v1/buckets/{bucket}/drain", o.drainBucket, admin},
		{"DELETE", "/v1/buckets/{bucket}/drain", o.stopDrain, admin},
		{"POST", "/v1/buckets/{bucket}/release", o.releaseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/purge", o.purgeBucket, admin},
	}
}
