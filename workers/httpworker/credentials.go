package httpworker

import (
	"maps"
	"net/http"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// Files are the files that hold the secrets of a [Config]; "" for a secret that is in no file. The worker checks a file before each request, and again
// after a 401, so each request uses the current secret.
type Files struct {
	Bearer, BasicUser, BasicPassword, HeaderValue, ClientSecret string

	Headers map[string]string // name of a header → file
}

// credentials are the credentials and the headers of a configuration, with the current content of files.
type credentials struct {
	auth    Auth
	headers map[string]string
	files   []credentialFile
}

// credentialFile is the file of one secret, and where the secret belongs.
type credentialFile struct {
	*outgoing.SecretFile

	set func(c *sent, text string)
}

// sent are the credentials and the headers of one request.
type sent struct {
	auth    Auth
	headers map[string]string
	token   *oauth2.Token
}

func newCredentials(c *Config) *credentials {
	all := &credentials{auth: c.Auth, headers: c.Headers}
	add := func(path, text string, set func(c *sent, text string)) {
		if path != "" {
			file := outgoing.NewSecretFile(path, text)
			file.Accepts = httpguts.ValidHeaderFieldValue
			all.files = append(all.files, credentialFile{file, set})
		}
	}
	f := c.Files
	add(f.Bearer, c.Auth.Bearer, func(s *sent, text string) { s.auth.Bearer = text })
	add(f.BasicUser, c.Auth.Basic.User, func(s *sent, text string) { s.auth.Basic.User = text })
	add(f.BasicPassword, c.Auth.Basic.Password, func(s *sent, text string) { s.auth.Basic.Password = text })
	add(f.HeaderValue, c.Auth.Header.Value, func(s *sent, text string) { s.auth.Header.Value = text })
	add(f.ClientSecret, c.Auth.OAuth2.ClientSecret, func(s *sent, text string) { s.auth.OAuth2.ClientSecret = text })
	for name, path := range f.Headers {
		add(path, c.Headers[name], func(s *sent, text string) { s.headers[name] = text })
	}
	return all
}

// now returns the current credentials. If a file cannot be read, or no header can hold its content, the secret stays as it was.
func (c *credentials) now() sent { return c.read((*outgoing.SecretFile).Read) }

// again returns the credentials after it has read each file, whether or not the file seems to have changed.
func (c *credentials) again() sent { return c.read((*outgoing.SecretFile).ReadAgain) }

func (c *credentials) read(read func(*outgoing.SecretFile) (string, error)) sent {
	s := sent{auth: c.auth, headers: c.headers}
	if len(c.files) > 0 {
		s.headers = maps.Clone(c.headers)
	}
	for _, file := range c.files {
		text, _ := read(file.SecretFile) // the reload of the configuration reports the fault
		file.set(&s, text)
	}
	return s
}

// differ reports whether a request would be sent with other credentials than this one.
func (s *sent) differ(from *sent) bool {
	return s.auth.Bearer != from.auth.Bearer || s.auth.Basic != from.auth.Basic || s.auth.Header != from.auth.Header || !maps.Equal(s.headers, from.headers)
}

// renewed reports whether the next request has other credentials than the sent one, which the API answered with 401.
func (w *Worker) renewed(s *sent) bool {
	if s.token != nil {
		return w.tokens.reject(s.token)
	}
	if len(w.credentials.files) == 0 {
		return false
	}
	now := w.credentials.again()
	return now.differ(s)
}

// checkCredentials judges the outcome of a request by its credentials. A job whose credentials were replaced meanwhile waits for its next slot, and spends no
// attempt: the API has not processed it. Each renewal excuses the requests under way, so a 401 to the new credentials counts.
//
// While the API refuses credentials that are still the same to several jobs, and accepts none, the jobs wait: see [refused].
func (w *Worker) checkCredentials(outcome shaper.Outcome, s *sent, attempt *shaper.Attempt) shaper.Outcome {
	if outcome.Status != http.StatusUnauthorized {
		w.noteStatus(outcome.Status)
		return outcome
	}
	switch {
	case w.renewed(s):
		held := replaced()
		held.Body, held.Answer = outcome.Body, outcome.Answer
		return held
	case w.holdsSecret(s):
		return w.judgeRefused(outcome, attempt)
	}
	return outcome
}

// replaced returns the outcome of a 401 to credentials that have been replaced since.
func replaced() shaper.Outcome {
	return shaper.Outcome{
		Result: shaper.ResultHeld, Reason: workers.ReasonCredentials, Status: http.StatusUnauthorized,
		Detail: "the receiver refused credentials that have been replaced meanwhile", Used: shaper.Units{},
	}
}
