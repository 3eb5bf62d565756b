package outgoing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS are the certificates of connections to receivers, as names of PEM files. The zero value trusts the system's CAs and has no client certificate. The
// files are read again for each new connection, so they can be renewed while the worker runs.
type TLS struct {
	CA        string // authorities to trust instead of the system's, for all receivers
	Cert, Key string // client certificate, both or none. It is shown only to the origin of the bucket's URL
}

// ErrTLSFiles marks a fault of the files: an operator can mend it, so the job is not lost.
var ErrTLSFiles = errors.New("the files for TLS cannot be used, so nothing is sent")

// Check reads the files by readFile and returns every fault, joined. Each begins with its key in the configuration: the worker's table, such as
// "webhook", and the rest.
func (t TLS) Check(table string, readFile func(string) ([]byte, error)) error {
	var errs []error
	fail := func(key, file string, err error) {
		errs = append(errs, fmt.Errorf("%s.tls.%s: %q: %w", table, key, file, err))
	}
	if t.CA != "" {
		if _, err := authorities(t.CA, readFile); err != nil {
			fail("ca", t.CA, err)
		}
	}
	if t.Cert == "" || t.Key == "" {
		return errors.Join(errs...)
	}
	cert, err := readFile(t.Cert)
	if err != nil {
		fail("cert", t.Cert, fmt.Errorf("cannot be read: %w", err))
	}
	key, keyErr := readFile(t.Key)
	if keyErr != nil {
		fail("key", t.Key, fmt.Errorf("cannot be read: %w", keyErr))
	}
	if err == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			fail("cert", t.Cert, fmt.Errorf("is no pair with %s.tls.key: %w", table, err))
		}
	}
	return errors.Join(errs...)
}

func authorities(file string, readFile func(string) ([]byte, error)) (*x509.CertPool, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("has no certificate in PEM")
	}
	return pool, nil
}

// apply reads the files into the configuration of a connection. The error is an ErrTLSFiles.
func (t TLS) apply(config *tls.Config, withCertificate bool) error {
	if t.CA != "" {
		pool, err := authorities(t.CA, os.ReadFile)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrTLSFiles, t.CA, err)
		}
		config.RootCAs = pool
	}
	if t.Cert == "" || !withCertificate {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTLSFiles, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}
