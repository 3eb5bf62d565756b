package operator

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Fields of a patch that change the list of a flow's secrets, where [shaper.FlowSecrets] replaces it.
const (
	AddSecrets    = "add_secrets"
	RemoveSecrets = "remove_secrets"
)

var (
	errSecretsTwice = fmt.Errorf("%s: are replaced, and added or removed too: choose one", shaper.FlowSecrets)

	errTooManySecrets = fmt.Errorf("%s: the flow would have more than %d secrets: remove one, as all of them sign each delivery", AddSecrets, maxFlowSecrets)

	fingerprint = regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", 2*shaper.FingerprintBytes))
)

// PutSecrets sets the secrets with which the flow's deliveries are signed, and removes all others.
func (p *FlowPatch) PutSecrets(secrets []string) error {
	if !p.secrets.isZero() {
		return errSecretsTwice
	}
	if err := checkSecrets(string(shaper.FlowSecrets), secrets); err != nil {
		return err
	}
	p.own.Secrets = secrets
	p.give(shaper.FlowSecrets)
	return nil
}

// AddSecrets makes the flow's deliveries signed with these secrets too, before its present ones. The flow has at most 8; a secret that it has already
// stays where it is.
func (p *FlowPatch) AddSecrets(secrets []string) error {
	err := checkSecrets(AddSecrets, secrets)
	if err == nil {
		err = p.changeSecrets(len(secrets) > 0)
	}
	if err == nil {
		p.secrets.Put = secrets
	}
	return err
}

// RemoveSecrets removes the secrets of these fingerprints from the flow: see [shaper.SecretFingerprint]. Removing a secret that the flow does not
// have is harmless. A flow without secrets of its own uses its bucket's.
func (p *FlowPatch) RemoveSecrets(fingerprints []string) error {
	for i, print := range fingerprints {
		if !fingerprint.MatchString(print) {
			return fmt.Errorf("%s: number %d: want the fingerprint of a secret, %d hex digits, as the settings of the flow show it",
				RemoveSecrets, i+1, 2*shaper.FingerprintBytes)
		}
	}
	err := p.changeSecrets(len(fingerprints) > 0)
	if err == nil {
		p.secrets.remove = fingerprints
	}
	return err
}

// changeSecrets notes that the patch changes the list of secrets.
func (p *FlowPatch) changeSecrets(some bool) error {
	if p.given[shaper.FlowSecrets] && p.secrets.isZero() {
		return errSecretsTwice
	}
	if some {
		p.give(shaper.FlowSecrets)
	}
	return nil
}

func checkSecrets(field string, secrets []string) error {
	if len(secrets) > maxFlowSecrets {
		return fmt.Errorf("%s: %d: want at most %d", field, len(secrets), maxFlowSecrets)
	}
	for i, secret := range secrets {
		if secret == "" || len(secret) > maxFlowText || !utf8.ValidString(secret) {
			return fmt.Errorf("%s: number %d: want text of 1 to %d bytes", field, i+1, maxFlowText)
		}
	}
	return nil
}
