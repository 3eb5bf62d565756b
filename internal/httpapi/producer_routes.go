package httpapi

import "github.com/tundish-io/tundish/internal/apikey"

func (p *producer) routes() []route {
	return []route{
		{"POST", "/v1/buckets/{bucket}/jobs", p.enqueue, roles(apikey.RoleEnqueue), nil},
		{"POST", "/v1/buckets/{bucket}/jobs/batch", p.enqueueBatch, roles(apikey.RoleEnqueue), nil},
		{"", proxyPath + "{bucket}", p.proxy, rights{roles: []apikey.Role{apikey.RoleEnqueue}, clientKey: true, anyBucket: true}, nil},
		{"", "/v1/limits/{limit}/check", p.checkLimit, roles(apikey.RoleCheck), nil},
		{"", "/v1/limits/{limit}/check/{original...}", p.checkForGateway, roles(apikey.RoleCheck), nil},
	}
}

func (p *producer) limitOps() limitOps { return limitOps{p.limits, p.overrides, p.store, p.log} }
