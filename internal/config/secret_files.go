package config

import (
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// These secrets are read again while a program runs: the password of Redis for each connection, and the credentials of requests before each one. All
// other secrets follow the files at the next reload, which a change of any file that was read triggers.

// httpFiles are the files of the secrets of a worker whose table is at p.
func (l *loader) httpFiles(p place) httpworker.Files {
	file := func(keys ...string) string {
		at := p
		for _, key := range keys {
			at = at.key(key)
		}
		return l.secretFiles[at.path]
	}
	files := httpworker.Files{
		Bearer: file("auth", "bearer"), BasicUser: file("auth", "basic", "user"), BasicPassword: file("auth", "basic", "password"),
		HeaderValue: file("auth", "header", "value"), ClientSecret: file("auth", "oauth2", "client_secret"), Headers: map[string]string{},
	}
	return files
}

// headerFiles adds the files of headers.
func (l *loader) headerFiles(p place, headers map[string]Secret, files *httpworker.Files) {
	for name := range headers {
		if path := l.secretFiles[p.key("headers").key(name).path]; path != "" {
			files.Headers[name] = path
		}
	}
}

// bucketFiles records the files of the secrets of a bucket's worker.
func (l *loader) bucketFiles(b *Bucket, p place) {
	if b.HTTP != nil {
		b.HTTP.Files = l.httpFiles(p.key("http"))
		l.headerFiles(p.key("http"), b.HTTP.Headers, &b.HTTP.Files)
	}
	if b.LLM != nil {
		b.LLM.Files = l.httpFiles(p.key("llm"))
		l.headerFiles(p.key("llm"), b.LLM.Headers, &b.LLM.Files)
	}
}

// RedisFiles are the files that credentials of Redis were read from; "" for those that are in no file.
type RedisFiles struct{ URL, Password, SentinelPassword string }

func (l *loader) redisFiles() RedisFiles {
	return RedisFiles{l.secretFiles["redis.url"], l.secretFiles["redis.password"], l.secretFiles["redis.sentinel_password"]}
}

// credentials returns a function that reads the user and the password of Redis for each connection, nil if neither is in a file.
func (r *Redis) credentials() func() (user, password string, err error) {
	if r.Files.URL == "" && r.Files.Password == "" {
		return nil
	}
	url, password := outgoing.NewSecretFile(r.Files.URL, r.URL.Reveal()), outgoing.NewSecretFile(r.Files.Password, r.Password.Reveal())
	given, ofURL := r.Password.Reveal(), r.URL.Reveal()
	return func() (string, string, error) {
		address := ofURL
		if r.Files.URL != "" {
			var err error
			if address, err = url.Read(); err != nil {
				return "", "", err
			}
		}
		user, secret, err := redisconn.CredentialsOf(address)
		if err != nil {
			return "", "", err
		}
		if given != "" {
			secret = given
		}
		if r.Files.Password != "" {
			secret, err = password.Read()
		}
		return user, secret, err
	}
}

// sentinelCredentials returns the same of the sentinels.
func (r *Redis) sentinelCredentials() func() (user, password string, err error) {
	if r.Files.SentinelPassword == "" {
		return nil
	}
	user, password := redisconn.SentinelUserOf(r.URL.Reveal()), outgoing.NewSecretFile(r.Files.SentinelPassword, r.SentinelPassword.Reveal())
	return func() (string, string, error) {
		secret, err := password.Read()
		return user, secret, err
	}
}
