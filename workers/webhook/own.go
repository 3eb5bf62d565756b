package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of a secret, as Standard Webhooks has them.
const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
)

// errFlow marks the fault of a flow's own settings: an operator can mend it, so the job
// is not lost.
var errFlow = errors.New("the settings of the job's flow cannot be used, so it is not sent")

// CheckFlow reports every fault of a flow's own settings for deliveries, joined, each a
// [*shaper.FieldError] that repeats neither a URL nor a secret; or nil. It is called when
// an operator sets them, and Deliver checks again.
func CheckFlow(own *shaper.OwnDelivery) error {
	_, err := readFlow(own)
	return err
}

// readFlow is CheckFlow, and returns the target of the flow's URL, zero where it has none.
func readFlow(own *shaper.OwnDelivery) (target, error) {
	var t target
	var errs []error
	if own.URL != "" {
		var err error
		if t, err = parseURL(own.URL); err != nil {
			errs = append(errs, &shaper.FieldError{Field: "url", Reason: err.Error()})
		}
	}
	headers := make(map[string][]string, len(own.Headers))
	for name, value := range own.Headers {
		headers[name] = []string{value}
	}
	errs = append(errs, checkHeaders(headers))
	for i, secret := range own.Secrets {
		if _, err := keyOf(secret); err != nil {
			errs = append(errs, &shaper.FieldError{Field: "secrets", Reason: fmt.Sprintf("number %d: %v", i+1, err)})
		}
	}
	return t, errors.Join(errs...)
}

func keyOf(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, fmt.Errorf("want %s and %d to %d bytes in base64", secretPrefix, minSecretBytes, maxSecretBytes)
	}
	return key, nil
}

// own are the checked settings of a flow for deliveries, for the bucket of a Config.
type own struct {
	*shaper.OwnDelivery        // nil where it has nothing
	target              target // where jobs go that name none, zero for nowhere
}

// ownOf checks the settings of a flow for deliveries, which may be nil. The error is an errFlow.
func (c Config) ownOf(flow *shaper.OwnDelivery) (own, error) {
	home, err := c.homeTarget()
	if err != nil {
		return own{}, fmt.Errorf("%w: url: %w", errFlow, err) // Validate has seen the bucket's
	}
	o := own{OwnDelivery: flow, target: home}
	if flow == nil {
		return o, nil
	}
	t, err := readFlow(flow)
	if err != nil {
		return own{}, fmt.Errorf("%w: %w", errFlow, err)
	}
	if t.url != nil {
		o.target = t
	}
	return o, nil
}

// trusts reports whether the flow's headers and secrets may go to an origin.
func (o own) trusts(to shaper.Origin) bool {
	return o.OwnDelivery != nil && o.target.url != nil && o.target.origin == to
}

// write adds the flow's headers to an attempt, over the headers of the job, and a signature
// by each of the flow's secrets.
func (o own) write(h http.Header, attempt *shaper.Attempt, now time.Time) {
	for name, value := range o.Headers {
		h.Set(name, value)
	}
	signatures := make([]string, 0, len(o.Secrets))
	for _, secret := range o.Secrets {
		signatures = append(signatures, sign(secret, attempt.ID, now, attempt.Payload))
	}
	if len(signatures) > 0 {
		h.Set("webhook-signature", strings.Join(signatures, " "))
	}
}

// sign is the signature of Standard Webhooks by one secret, which was checked.
func sign(secret, id string, at time.Time, payload []byte) string {
	key, _ := keyOf(secret)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(payload)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
