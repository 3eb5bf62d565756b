package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// registered registers the collector and returns it, or the equal collector that is registered already. It appends a failure to errs.
func registered[C prometheus.Collector](reg prometheus.Registerer, errs *[]error, c C) C {
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if known, ok := already.ExistingCollector.(C); ok {
			return known
		}
	}
	if err != nil {
		*errs = append(*errs, err)
	}
	return c
}
