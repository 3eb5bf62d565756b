package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Certificates are PEM files of a CA and of a pair that it signed, for 127.0.0.1 and [ServerName], as a server and as a client.
type Certificates struct{ CA, Cert, Key string }

// ServerName is the name in the certificates, in addition to the loopback address.
const ServerName = "redis.test"

// NewCertificates makes certificates of a CA of their own.
func NewCertificates(t testing.TB) Certificates {
	t.Helper()
	dir := t.TempDir()
	c := Certificates{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: ServerName}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{ServerName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	writeCertificate(t, c.CA, ca, ca, caKey, caKey)
	writeCertificate(t, c.Cert, leaf, ca, key, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, c.Key, "EC PRIVATE KEY", der)
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeCertificate(t testing.TB, path string, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, path, "CERTIFICATE", der)
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// StartTLS is [Start] for a server that speaks TLS at [Server.TLSAddr], with certificates of its own, and requires client certificates. Its other
// addresses are as usual.
func StartTLS(t testing.TB, args ...string) (*Server, Certificates) {
	t.Helper()
	port := reserveFor(t)
	c := NewCertificates(t)
	server := Start(t, append(tlsArgs(c, port), args...)...)
	server.tlsPort = port
	return server, c
}

func tlsArgs(c Certificates, port int) []string {
	return []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", c.Cert, "--tls-key-file", c.Key, "--tls-ca-cert-file", c.CA, "--tls-auth-clients", "yes",
	}
}

// TLSAddr returns the host and port that speak TLS, of a server of [StartTLS].
func (s *Server) TLSAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort)) }
