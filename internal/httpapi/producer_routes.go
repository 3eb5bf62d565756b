package httpapi

func (p *producer) routes() []route {
	return []route{
		{"POST", "/v1/buckets/{bucket}/jobs", p.enqueue, roles(RoleEnqueue)},
		{"POST", "/v1/buckets/{bucket}/jobs/batch", p.enqueueBatch, roles(RoleEnqueue)},
		{"", proxyPath + "{bucket}", p.proxy, rights{roles: []Role{RoleEnqueue}, clientKey: true}},
		{"", "/v1/limits/{limit}/check", p.checkLimit, roles(RoleCheck)},
		{"", "/v1/limits/{limit}/check/{original...}", p.checkForGateway, roles(RoleCheck)},
		{"GET", "/v1/limits", p.listLimits, roles(RoleRead)},
		{"GET", "/v1/limits/{limit}", p.showLimit, roles(RoleRead)},
		{"PATCH", "/v1/limits/{limit}", p.changeLimit, rights{roles: []Role{RoleAdmin}, allBuckets: true}},
		{"DELETE", "/v1/limits/{limit}/override", p.resetLimit, rights{roles: []Role{RoleAdmin}, allBuckets: true}},
	}
}
