package httpapi

import "github.com/tundish-io/tundish/internal/apikey"

func (p *producer) routes() []route {
	return []route{
		{"POST", "/v1/buckets/{bucket}/jobs", p.enqueue, roles(apikey.RoleEnqueue)},
		{"POST", "/v1/buckets/{bucket}/jobs/batch", p.enqueueBatch, roles(apikey.RoleEnqueue)},
		{"", proxyPath + "{bucket}", p.proxy, rights{roles: []apikey.Role{apikey.RoleEnqueue}, clientKey: true}},
		{"", "/v1/limits/{limit}/check", p.checkLimit, roles(apikey.RoleCheck)},
		{"", "/v1/limits/{limit}/check/{original...}", p.checkForGateway, roles(apikey.RoleCheck)},
		{"GET", "/v1/limits", p.listLimits, roles(apikey.RoleRead)},
		{"GET", "/v1/limits/{limit}", p.showLimit, roles(apikey.RoleRead)},
		{"PATCH", "/v1/limits/{limit}", p.changeLimit, rights{roles: []apikey.Role{apikey.RoleAdmin}, allBuckets: true}},
		{"DELETE", "/v1/limits/{limit}/override", p.resetLimit, rights{roles: []apikey.Role{apikey.RoleAdmin}, allBuckets: true}},
	}
}
