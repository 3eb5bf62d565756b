package webhook

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// errFlow marks the fault of a flow's own settings: an operator can mend it, so the job
// is not lost.
var errFlow = errors.New("the settings of the job's flow cannot be used, so it is not sent")

// CheckFlow reports every fault of a flow's own settings for deliveries, joined, each a
// [*shaper.FieldError] that repeats neither a URL nor a secret; or nil. It is called when
// an operator sets them, and Deliver checks again.
func (c Config) CheckFlow(own *shaper.OwnDelivery) error {
	_, _, err := c.readFlow(own)
	return err
}

// readFlow is CheckFlow. It also returns the target of the flow's URL, zero without one, and the signers of its secrets.
func (c *Config) readFlow(own *shaper.OwnDelivery) (t outgoing.Target, signers []signer, err error) {
	var errs []error
	if own.URL != "" {
		if t, err = outgoing.ParseURL(own.URL); err != nil {
			errs = append(errs, &shaper.FieldError{Field: "url", Reason: err.Error()})
		}
	}
	headers := make(map[string][]string, len(own.Headers))
	for name, value := range own.Headers {
		headers[name] = []string{value}
	}
	errs = append(errs, c.checkHeaders(headers))
	signers, err = newSigners(own.Secrets)
	return t, signers, errors.Join(append(errs, err)...)
}

// own are the checked settings of a flow for deliveries, for the bucket of a Config.
type own struct {
	*shaper.OwnDelivery                 // nil if it has none
	target              outgoing.Target // the target of jobs that name none, zero for none
	signers             []signer        // of its secrets
}

// ownOf checks the settings of a flow for deliveries, which may be nil. The error is an errFlow.
func (c *Config) ownOf(flow *shaper.OwnDelivery) (*own, error) {
	if flow == nil {
		return &c.home, nil
	}
	target, signers, err := c.readFlow(flow)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFlow, err)
	}
	if target.URL == nil {
		target = c.home.target
	}
	return &own{OwnDelivery: flow, target: target, signers: signers}, nil
}

// trusts reports whether the flow's headers and secrets may go to an origin.
func (o *own) trusts(to shaper.Origin) bool {
	return o.OwnDelivery != nil && o.target.Is(to)
}

// setHeaders writes the flow's headers over the job's.
func (o *own) setHeaders(h http.Header) {
	for name, value := range o.Headers {
		h.Set(name, value)
	}
}

// signersFor returns the signers of a delivery to an origin: the flow's, or the bucket's if the flow has none. A flow's signers are used only towards
// the origin that its credentials are for. The bucket's signers are used only towards the origin of the bucket's URL. Any other receiver could pass the
// signed request on to that origin, which trusts the secret.
func (c *Config) signersFor(own *own, to shaper.Origin) []signer {
	switch {
	case len(own.signers) == 0 && c.home.target.Is(to):
		return c.signers
	case own.trusts(to):
		return own.signers
	}
	return nil
}
