package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tundish-io/tundish/shaper"
)

// MaxSecrets is how many secrets of a bucket sign at a time.
const MaxSecrets = 10

// Bounds of a secret, as the specification of Standard Webhooks has them.
const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
)

// signer signs deliveries by one secret.
type signer struct{ *standardwebhooks.Webhook }

// newSigner checks a secret. The library alone would accept any key, and a secret without its prefix: an empty secret would sign too. The error does not
// repeat the secret.
func newSigner(secret string) (signer, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return signer{}, fmt.Errorf("want %s and %d to %d bytes in base64", secretPrefix, minSecretBytes, maxSecretBytes)
	}
	webhook, err := standardwebhooks.NewWebhookRaw(key)
	return signer{webhook}, err
}

// CheckSecret reports the fault of a secret that could not sign, without the secret; or nil.
func CheckSecret(secret string) error {
	_, err := newSigner(secret)
	return err
}

// newSigners checks secrets. The error joins the faults, each a [*shaper.FieldError] that repeats no secret.
func newSigners(secrets []string) ([]signer, error) {
	var signers []signer
	var errs []error
	for i, secret := range secrets {
		s, err := newSigner(secret)
		if err != nil {
			errs = append(errs, &shaper.FieldError{Field: "secrets", Reason: fmt.Sprintf("number %d: %v", i+1, err)})
		}
		signers = append(signers, s)
	}
	return signers, errors.Join(errs...)
}

// dots writes an id without dots, so that two ids stay two.
var dots = strings.NewReplacer(".", "%2E", "%", "%25")

// messageID returns the webhook-id of a job. Standard Webhooks signs id, timestamp and body with dots between them: a dot in an id could
// move the border between them.
func messageID(id string) string { return dots.Replace(id) }

// signature is the value of webhook-signature: one signature for each signer, in order. "" without signers.
func signature(signers []signer, id string, at time.Time, body []byte) (string, error) {
	list := make([]string, len(signers))
	for i, s := range signers {
		var err error
		if list[i], err = s.Sign(id, at, body); err != nil {
			return "", fmt.Errorf("sign the delivery: %w", err)
		}
	}
	return strings.Join(list, " "), nil
}
