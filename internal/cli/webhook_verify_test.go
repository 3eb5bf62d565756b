package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// The vector of the Standard Webhooks specification.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	otherSecret     = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func verify(t *testing.T, body string, args ...string) result {
	t.Helper()
	env := []string{"NEW=" + otherSecret, "OLD=" + vectorSecret, "NONE=hunter2"}
	fixed := []string{"dispatcher", "webhook", "verify", "--id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "--timestamp", "1614265330", "--signature", vectorSignature}
	r := runArgs(t.Context(), env, body, append(fixed, args...)...)
	for _, secret := range []string{vectorSecret, otherSecret, "hunter2"} {
		if strings.Contains(r.out+r.err, secret) {
			t.Errorf("%v: a secret shows in %s%s", args, r.out, r.err)
		}
	}
	return r
}

func TestWebhookVerify(t *testing.T) {
	t.Parallel()
	anyAge := []string{"--tolerance", "0s"}
	with := func(args ...string) []string { return append(args, anyAge...) }
	verify(t, vectorBody, with("--secret-env", "OLD")...).want(t, 0, "valid: signed by the secret in env:OLD\n")
	file := secretFile(t, vectorSecret)
	verify(t, vectorBody, with("--secret-env", "NEW", "--secret-file", file)...).want(t, 0, "valid: signed by the secret in file:"+file)
	verify(t, vectorBody, with("--secret-env", "OLD", "--signature", "v1,AAAA "+vectorSignature)...).want(t, 0)

	verify(t, vectorBody, "--secret-env", "OLD").want(t, 1, "not valid: the timestamp is too old", "The signature itself is by the secret in env:OLD")
	verify(t, vectorBody, with("--secret-env", "NEW")...).want(t, 1, "not valid: no secret matches",
		`The signed content is the text "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330." and the body: 20 bytes with the SHA-256 ae858931`)
	verify(t, vectorBody+"\n", with("--secret-env", "OLD")...).want(t, 1, "without the newline at its end")
	verify(t, vectorBody, with("--secret-env", "OLD", "--signature", "v1a,AAAA")...).want(t, 1, `no signature of version v1: it has "v1a"`)

	var view struct {
		Valid  bool
		Secret string
		Faults []string
		Signed struct {
			Prefix     string `json:"prefix"`
			BodyBytes  int    `json:"body_bytes"`
			BodySHA256 string `json:"body_sha256"`
		}
	}
	r := verify(t, vectorBody, with("--secret-env", "OLD", "--json")...)
	r.want(t, 0)
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || !view.Valid || view.Secret != "env:OLD" || view.Faults == nil || view.Signed.BodyBytes != 20 || len(view.Signed.BodySHA256) != 64 {
		t.Errorf("%v: %s", err, r.out)
	}
	r = verify(t, "", "--secret-env", "NEW", "--json")
	r.want(t, 1)
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || view.Valid || len(view.Faults) != 2 || view.Signed.Prefix != "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330." || r.err != "" {
		t.Errorf("%v: %s%s", err, r.out, r.err)
	}
}

func TestWebhookVerifyUsage(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"say where the secret is":                                      nil,
		`the secret in env:NO_SUCH: the variable "NO_SUCH" is not set`: {"--secret-env", "NO_SUCH"},
		"the secret in file:/no/such: cannot be read":                  {"--secret-file", "/no/such"},
		"the secret in env:NONE: want whsec_ and 24 to 64 bytes":       {"--secret-env", "NONE"},
		"--id is missing":                            {"--secret-env", "OLD", "--id", ""},
		"--signature is missing":                     {"--secret-env", "OLD", "--signature", ""},
		`--timestamp "yesterday": want Unix seconds`: {"--secret-env", "OLD", "--timestamp", "yesterday"},
		"--tolerance -5m0s: want 0s or more":         {"--secret-env", "OLD", "--tolerance", "-5m"},
		`"body" is one argument too many`:            {"--secret-env", "OLD", "body"},
	} {
		verify(t, vectorBody, args...).want(t, 2, text)
	}
}
