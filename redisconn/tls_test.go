package redisconn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTLSOptions(t *testing.T) {
	t.Parallel()
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		url  string
		tls  TLSOptions
		want string
	}{
		"not TLS":          {"redis://h", TLSOptions{ServerName: "x"}, "write rediss"},
		"no such file":     {"rediss://h", TLSOptions{CA: "/no/such/file"}, "/no/such/file"},
		"no certificate":   {"rediss+cluster://h", TLSOptions{CA: noPEM}, "no certificate in PEM"},
		"only one of two":  {"rediss://h", TLSOptions{Cert: noPEM}, "one of the two is missing"},
		"no pair":          {"rediss://h", TLSOptions{Cert: noPEM, Key: noPEM}, "read the certificate"},
		"nothing is given": {"redis://h", TLSOptions{}, ""},
		"a name":           {"rediss://h", TLSOptions{ServerName: "x"}, ""},
	} {
		client, err := Connect(test.url, Options{TLS: test.tls})
		if err == nil {
			_ = client.Close()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
