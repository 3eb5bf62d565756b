package webhook

import (
	"bytes"
	"crypto/hmac"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Received holds the parts of a delivery from which its receiver checks the signature.
type Received struct {
	ID        string    // header webhook-id
	Timestamp time.Time // header webhook-timestamp, in whole seconds
	Signature string    // header webhook-signature: signatures separated by spaces
	Body      []byte    // byte for byte as it arrived
}

// signatureVersion is the symmetric signature of Standard Webhooks, HMAC-SHA256. There is an asymmetric one too, v1a.
const signatureVersion = "v1"

// Verify checks a signature as a receiver must. It returns the index of the secret that made it, -1 if none did. The error
// is nil if a secret made it and the timestamp is at most tolerance away from now; a tolerance of 0 accepts any
// timestamp. Else it joins every fault. A fault of a secret is a [*shaper.FieldError]. No error repeats a secret.
func Verify(secrets []string, r Received, now time.Time, tolerance time.Duration) (secret int, err error) {
	signers, err := newSigners(secrets)
	if err != nil {
		return -1, err
	}
	secret, err = r.match(signers)
	return secret, errors.Join(r.checkTime(now, tolerance), err)
}

func (r Received) checkTime(now time.Time, tolerance time.Duration) error {
	switch age := now.Sub(r.Timestamp).Round(time.Second); {
	case tolerance == 0:
		return nil
	case age > tolerance:
		return fmt.Errorf("the timestamp is too old: it is %s back, and at most %s are accepted", age, tolerance)
	case -age > tolerance:
		return fmt.Errorf("the timestamp is too new: it is %s ahead, and at most %s are accepted; is a clock wrong?", -age, tolerance)
	}
	return nil
}

// match returns the index of the signer that made one of the signatures, or -1 and the reason.
func (r Received) match(signers []signer) (int, error) {
	var candidates, others []string
	for _, text := range strings.Fields(r.Signature) {
		if version, _, _ := strings.Cut(text, ","); version == signatureVersion {
			candidates = append(candidates, text)
		} else {
			others = append(others, fmt.Sprintf("%.20q", version))
		}
	}
	if len(candidates) == 0 {
		found := "it is empty"
		if len(others) > 0 {
			found = "it has " + strings.Join(slices.Compact(others), ", ")
		}
		return -1, fmt.Errorf("the header has no signature of version %s: %s", signatureVersion, found)
	}
	i, err := made(signers, candidates, r)
	if i >= 0 || err != nil {
		return i, err
	}
	if cut := bytes.TrimRight(r.Body, "\r\n"); len(cut) < len(r.Body) {
		r.Body = cut
		if i, err := made(signers, candidates, r); i >= 0 && err == nil {
			return -1, errors.New("no secret matches the body as it came, but one does without the newline at its end: give the body as it was sent")
		}
	}
	return -1, errors.New("no secret matches: another secret signed, or id, timestamp and body are not as they were sent")
}

// made returns the index of the signer that made one of the signatures, or -1.
func made(signers []signer, signatures []string, r Received) (int, error) {
	for i, s := range signers {
		want, err := s.Sign(r.ID, r.Timestamp, r.Body)
		if err != nil {
			return -1, fmt.Errorf("make the signature to compare with: %w", err)
		}
		if slices.ContainsFunc(signatures, func(got string) bool { return hmac.Equal([]byte(got), []byte(want)) }) {
			return i, nil
		}
	}
	return -1, nil
}
