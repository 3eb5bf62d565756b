package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSOptions are the certificates of a TLS connection to Redis, as names of PEM files. The zero value trusts the system's CAs and presents no client
// certificate.
type TLSOptions struct {
	CA         string // authorities to trust instead of the system's
	Cert, Key  string // ours, both or none; read again for each connection, so that they can be renewed
	ServerName string // the name in the certificates of all servers, if it is not their host's
}

// apply puts the options into the TLS configuration of a URL, nil for a URL without TLS.
func (o TLSOptions) apply(config *tls.Config) error {
	switch {
	case o == TLSOptions{}:
		return nil
	case config == nil:
		return errors.New("TLS options are given, but the URL is not one of TLS: write rediss instead of redis, or remove the options")
	case (o.Cert == "") != (o.Key == ""):
		return errors.New("a certificate and its key are needed for TLS, and one of the two is missing")
	}
	if o.ServerName != "" {
		config.ServerName = o.ServerName
	}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return fmt.Errorf("read the authorities for TLS: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("read the authorities for TLS: %s has no certificate in PEM", o.CA)
		}
	}
	if o.Cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(o.Cert, o.Key); err != nil {
		return fmt.Errorf("read the certificate for TLS: %w", err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		return &pair, err
	}
	return nil
}
