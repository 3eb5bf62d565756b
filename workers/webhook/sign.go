package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// signatureVersion is the symmetric signature of Standard Webhooks, HMAC-SHA256. There is an asymmetric one too, v1a.
const signatureVersion = "v1"

// signer signs deliveries by one secret. The library of Standard Webhooks copies the whole body twice for a signature, so it is only
// what the tests compare with.
type signer struct{ key []byte }

// sign makes one signature.
func (s signer) sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return signatureVersion + "," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// newSigner checks a secret. The error does not repeat it.
func newSigner(secret string) (signer, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return signer{}, fmt.Errorf("want %s and %d to %d bytes in base64", secretPrefix, minSecretBytes, maxSecretBytes)
	}
	return signer{key}, nil
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

// signature is the value of webhook-signature: one signature for each signer, in order. "" without signers.
func signature(signers []signer, id string, at time.Time, body []byte) string {
	list := make([]string, len(signers))
	for i, s := range signers {
		list[i] = s.sign(id, at, body)
	}
	return strings.Join(list, " ")
}
