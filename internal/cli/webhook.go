package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/workers/webhook"
)

func (a *invocation) webhookCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "webhook",
		Short: "Check the signature of a delivery",
		Long: `Check the signature of a delivery. The command helps to write receivers, and talks
to no server.`,
		Example: a.examples(`  dispatcher webhook verify --secret-env WEBHOOK_SECRET --id order-17 \
    --timestamp 1614265330 --signature "v1,g0hM9S…" < body`),
	}, a.webhookVerifyCommand())
}

// maxSignedBody bounds the body that is read from standard input. It is above any payload of a job.
const maxSignedBody = 32 << 20

// verifyFlags are the flags of `dispatcher webhook verify`.
type verifyFlags struct {
	files, variables []string
	id, timestamp    string
	signature        string
	tolerance        time.Duration
}

func (a *invocation) webhookVerifyCommand() *cobra.Command {
	var flags verifyFlags
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "verify",
		Short: "Check a signature of Standard Webhooks, with the body on stdin",
		Long: `Check whether a secret signed a delivery, as a receiver must. The body comes on stdin, byte for
byte as it arrived: not parsed and encoded again, and without a newline behind it. The other
parts are the headers webhook-id, webhook-timestamp and webhook-signature.

The answer names the secret that matches. If none does, the answer says why, and describes the
content that was signed. The exit code is 0 for a valid signature, 1 for any other, and 2 for
wrong usage.

A secret begins with whsec_. The flags say where each secret is, because other users of this
machine can read a command line.`,
		Example: a.examples(`  dispatcher webhook verify --secret-env WEBHOOK_SECRET --id order-17 --timestamp 1614265330 \
    --signature "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" < body.json
  dispatcher webhook verify --secret-file new --secret-file old --id order-17 \
    --timestamp 1614265330 --signature "$SIGNATURE" --tolerance 0s --json < body.json`),
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.webhookVerify(cmd, flags) },
	})
	f := cmd.Flags()
	f.StringArrayVar(&flags.files, "secret-file", nil, "`file` that holds a secret; may be repeated")
	f.StringArrayVar(&flags.variables, "secret-env", nil, "`variable` of the environment that holds a secret; may be repeated")
	f.StringVar(&flags.id, "id", "", "header webhook-id, a `text`; required")
	f.StringVar(&flags.timestamp, "timestamp", "", "header webhook-timestamp, Unix `seconds`; required")
	f.StringVar(&flags.signature, "signature", "", "header webhook-signature, a `text`: one signature, or several with spaces between them; required")
	f.DurationVar(&flags.tolerance, "tolerance", 5*time.Minute, "how far the timestamp may be from now, a `time`; 0s accepts any timestamp")
	return cmd
}

// verdictView is the result, for --json.
type verdictView struct {
	Valid  bool       `json:"valid"`
	Secret string     `json:"secret,omitempty"` // the source of the secret that matches
	Faults []string   `json:"faults"`
	Signed signedView `json:"signed"`
}

// signedView describes the content that is signed: Prefix, then the body.
type signedView struct {
	Prefix     string `json:"prefix"`
	BodyBytes  int    `json:"body_bytes"`
	BodySHA256 string `json:"body_sha256"`
}

func (a *invocation) webhookVerify(cmd *cobra.Command, flags verifyFlags) error {
	received, err := flags.received(cmd)
	if err != nil {
		return err
	}
	secrets, places, err := a.signingSecrets(cmd, flags)
	if err != nil {
		return err
	}
	if isTerminal(a.in) {
		return wrongUsage(cmd, "the body is missing: pipe it in")
	}
	if received.Body, err = io.ReadAll(io.LimitReader(a.in, maxSignedBody+1)); err != nil {
		return fmt.Errorf("read the body from standard input: %w", err)
	}
	if len(received.Body) > maxSignedBody {
		return fail(exitFailed, "the body has more than %d bytes", maxSignedBody)
	}
	secret, err := webhook.Verify(secrets, received, time.Now(), flags.tolerance)
	sum := sha256.Sum256(received.Body)
	view := verdictView{Valid: err == nil, Faults: []string{}, Signed: signedView{
		Prefix:    received.ID + "." + strconv.FormatInt(received.Timestamp.Unix(), 10) + ".",
		BodyBytes: len(received.Body), BodySHA256: hex.EncodeToString(sum[:]),
	}}
	if secret >= 0 {
		view.Secret = places[secret]
	}
	if err != nil {
		view.Faults = strings.Split(err.Error(), "\n")
	}
	if err := a.print(view, view.write); err != nil {
		return err
	}
	if !view.Valid {
		return silent(exitFailed)
	}
	return nil
}

// received reads the flags for headers.
func (f *verifyFlags) received(cmd *cobra.Command) (r webhook.Received, err error) {
	for _, flag := range []struct{ name, value string }{{"id", f.id}, {"timestamp", f.timestamp}, {"signature", f.signature}} {
		if flag.value == "" {
			return r, wrongUsage(cmd, "--%s is missing", flag.name)
		}
	}
	seconds, err := strconv.ParseInt(f.timestamp, 10, 64)
	if err != nil {
		return r, wrongUsage(cmd, "--timestamp %q: want Unix seconds, such as 1614265330", line(f.timestamp, 40))
	}
	if f.tolerance < 0 {
		return r, wrongUsage(cmd, "--tolerance %s: want 0s or more", f.tolerance)
	}
	return webhook.Received{ID: f.id, Timestamp: time.Unix(seconds, 0), Signature: f.signature}, nil
}

// signingSecrets reads the secrets that the flags name, and returns the source of each.
func (a *invocation) signingSecrets(cmd *cobra.Command, flags verifyFlags) (secrets, places []string, err error) {
	for _, name := range flags.files {
		places = append(places, "file:"+name)
	}
	for _, name := range flags.variables {
		places = append(places, "env:"+name)
	}
	if len(places) == 0 {
		return nil, nil, wrongUsage(cmd, "say where the secret is: --secret-file or --secret-env")
	}
	for _, place := range places {
		secret, err := config.SecretValue(a.options(), place)
		if err == nil {
			err = webhook.CheckSecret(secret)
		}
		if err != nil {
			return nil, nil, wrongUsage(cmd, "the secret in %s: %v", line(place, 200), err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, places, nil
}

func (v *verdictView) write(w io.Writer) {
	if v.Valid {
		fmt.Fprintf(w, "valid: signed by the secret in %s\n", line(v.Secret, 200))
		return
	}
	for _, fault := range v.Faults {
		fmt.Fprintf(w, "not valid: %s\n", line(fault, 500))
	}
	if v.Secret != "" {
		fmt.Fprintf(w, "The signature itself is by the secret in %s.\n", line(v.Secret, 200))
		return
	}
	fmt.Fprintf(w, "The signed content is the text %q and the body: %s with the SHA-256 %s.\n",
		line(v.Signed.Prefix, 200), opsview.Count(v.Signed.BodyBytes, "byte"), v.Signed.BodySHA256)
}
