package httpapi

import (
	"slices"
)

// Operations are all operations that are described so, in the order of their paths in openapi.yaml.
func Operations() []*Described {
	o, p := &ops{}, &producer{jobs: struct{ Jobs }{}}
	var list []*Described
	add := func(tag string, routes []route) {
		for _, r := range routes {
			if r.op == nil {
				continue
			}
			if at := slices.IndexFunc(list, func(d *Described) bool { return d.ID == r.op.ID }); at >= 0 {
				list[at].Tags = append(list[at].Tags, tag)
				continue
			}
			r.op.Tags = []string{tag}
			list = append(list, r.op)
		}
	}
	add("producer", p.oneJob().routes())
	add("producer", p.bundles().routes())
	add("producer", p.routes())
	add("producer", p.limitOps().routes())
	add("producer", (&probes{log: orDiscard(nil)}).routes())
	add("operator", o.oneJob().routes())
	add("operator", o.bundles().routes())
	add("operator", o.routes())
	add("operator", o.limits.routes())
	add("operator", (&probes{log: orDiscard(nil)}).routes())
	return list
}
