package shaper

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// However a URL is spelled, its place has one origin, and so one flow.
func TestOriginOf(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[string][]string{
		"http://example.com": {
			"http://example.com", "HTTP://Example.COM:80/x", "http://example.com./", "http://example.com:/", "http://example.com:00080/",
			"http://ｅｘａｍｐｌｅ.com/", "http://example。com/", "http://ⓔxample.com/", "http://ex%C2%ADample.com/", // a soft hyphen, which is not seen
		},
		"http://example.com:17410":   {"http://example.com:17410", "http://example.com:017410/", "http://example.com.:17410/"},
		"https://example.com":        {"https://example.com:443/", "https://example.com:0443/"},
		"https://example.com:80":     {"https://example.com:80/"},
		"http://127.0.0.1:17410":     {"http://127.0.0.1:17410", "http://127.0.0.1.:17410", "http://①②⑦.⓪.⓪.①:17410", "http://[::ffff:127.0.0.1]:17410/", "http://[::ffff:7f00:1]:017410/", "http://127。0。0。1:17410"},
		"http://[::1]":               {"http://[::1]/", "http://[0:0:0:0:0:0:0:1]:80/", "http://[::0001]:080"},
		"http://[2606:4700::1]:8080": {"http://[2606:4700:0:0::1]:8080"},
		"http://xn--mnchen-3ya.example": {
			"http://münchen.example", "http://MÜNCHEN.example", "http://xn--mnchen-3ya.example", "http://XN--MNCHEN-3YA.example.", "http://mu%CC%88nchen.example", "http://m%C3%BCnchen.example",
		},
		"http://xn--strae-oqa.example": {"http://straße.example"},
		"http://a_b.example":           {"http://A_b.example"},
		"http://r3---sn-apo.example":   {"http://r3---sn-apo.example"},
		"ftp://example.com":            {"FTP://example.com"},
		"ftp://example.com:21":         {"ftp://example.com:21"},
	} {
		for _, spelling := range spellings {
			if got, err := parseOrigin(t, spelling); err != nil || got.String() != want {
				t.Errorf("%s: %s, %v, want %s", spelling, got, err, want)
			}
		}
	}
}

func TestOriginOfBadHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"//example.com":            errScheme,
		"http://":                  errNoHost,
		"http://:80/":              errNoHost,
		"http:example.com":         errNoHost,
		"http://./":                errBadHost,
		"http://../":               errBadHost,
		"http://a..b/":             errBadHost,
		"http://.example.com/":     errBadHost,
		"http://example.com../":    errBadHost,
		"http://a,b/":              errBadHost,
		"http://a*b/":              errBadHost,
		"http://xn--a/":            errBadHost,
		"http://xn--example-/":     errBadHost,
		"http://[fe80::1%25eth0]/": errBadHost,
		"http://a%E2%80%AEb/":      errBadHost, // turns the direction of writing round
		"http://127.1/":            errNumber,
		"http://0x7f000001/":       errNumber,
		"http://2130706433/":       errNumber,
		"http://0177.0.0.1/":       errNumber,
		"http://127.0.0.01/":       errNumber,
		"http://①②⑦.①/":            errNumber,
		"http://example.com:0/":    errPort,
		"http://example.com:65616": errPort, // 80 in 16 bits
	} {
		if got, err := parseOrigin(t, text); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v, want %v", text, got, err, want)
		}
	}
}

func parseOrigin(t *testing.T, text string) (Origin, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return OriginOf(u)
}

func FuzzOrigin(f *testing.F) {
	for _, text := range []string{"http://example.com./", "http://①②⑦.1:080", "https://[::ffff:1.2.3.4]:443", "http://straße.example", "http://xn--a-.b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		origin, err := OriginOf(u)
		if err != nil {
			return
		}
		u, err = url.Parse(origin.String())
		if err != nil {
			t.Fatalf("%q: %q is no URL: %v", text, origin, err)
		}
		if again, err := OriginOf(u); again != origin {
			t.Errorf("%q: %q, and of that %q, %v", text, origin, again, err)
		}
	})
}

// The profile of hosts leaves every plain name as it is: OriginOf need not ask it.
func TestPlainNames(t *testing.T) {
	t.Parallel()
	const alphabet, longest = "axnz09-_.", 5
	plain := 0
	var check func(host string)
	check = func(host string) {
		if isPlainName(host) {
			plain++
			if got, err := hostProfile.ToASCII(host); err != nil || got != host {
				t.Errorf("%q is mapped to %q, %v", host, got, err)
			}
		}
		for i := 0; i < len(alphabet) && len(host) < longest; i++ {
			check(host + alphabet[i:i+1])
		}
	}
	check("")
	for _, host := range []string{"example.com", "a-b.c_d.example", "127.0.0.1", strings.Repeat("a", 300) + ".com"} {
		check(host)
	}
	if plain < 60_000 {
		t.Errorf("only %d names were plain", plain)
	}
	for _, host := range []string{"Example.com", "xn--mnchen-3ya.example", "münchen.example", "a%b", "a b", "a\x00", "ex\u00adample.com", "127。0。0。1", "[::1]", "::1"} {
		if isPlainName(host) {
			t.Errorf("%q is not plain", host)
		}
	}
}
