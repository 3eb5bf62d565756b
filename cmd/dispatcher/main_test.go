//go:debug x509usefallbackroots=1

package main

import (
	"crypto/x509"
	"encoding/pem"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The roots inside the program verify a chain of the real world, at the time at which the tests of Go have recorded it, and no chain of a stranger.
func TestRootsOfTLS(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", os.DevNull) // no roots of this machine; the line at the top asks for those inside then
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	recorded := certificates(t)
	at := time.Unix(1677615892, 0) // as in the tests of crypto/x509
	intermediates := x509.NewCertPool()
	intermediates.AddCert(recorded("gtsIntermediate"))
	chains, err := recorded("googleLeaf").Verify(x509.VerifyOptions{Intermediates: intermediates, CurrentTime: at, DNSName: "www.google.com"})
	if err != nil || len(chains) == 0 {
		t.Errorf("%v, %v: no root inside verifies a recorded chain", chains, err)
	}
	if _, err := recorded("selfSigned").Verify(x509.VerifyOptions{CurrentTime: at}); err == nil {
		t.Error("a certificate that signs itself is trusted")
	}
}

// certificates are those that the tests of crypto/x509 have, by the names of their constants.
func certificates(t *testing.T) func(name string) *x509.Certificate {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "crypto", "x509", "verify_test.go")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("not verified: this Go came without the tests of its library: %v", err)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) *x509.Certificate {
		t.Helper()
		spec, _ := parsed.Scope.Lookup(name).Decl.(*ast.ValueSpec)
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode([]byte(text))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
}
