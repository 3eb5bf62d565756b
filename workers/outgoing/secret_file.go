package outgoing

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// SecretFile is a secret in a file that may change while the program runs: Kubernetes puts another file behind a symbolic link. It is
// safe for concurrent use.
type SecretFile struct {
	path string

	// Accepts reports whether a text can be the secret: nil accepts any. After any other text the secret stays as it was. Set it before the first use.
	Accepts func(text string) bool

	mu   sync.Mutex
	seen os.FileInfo // of the file that was read last; nil before
	text string
}

// NewSecretFile returns the secret in the file at path. text is the content that the caller has read.
func NewSecretFile(path, text string) *SecretFile { return &SecretFile{path: path, text: text} }

// Read returns the secret. It reads the file only if the file was replaced or has changed. While the file cannot be read, or is empty, or its text is
// not accepted, it returns the last secret with the error.
func (f *SecretFile) Read() (string, error) { return f.read(false) }

// ReadAgain is Read, and reads the file also if it seems to be the same.
func (f *SecretFile) ReadAgain() (string, error) { return f.read(true) }

func (f *SecretFile) read(again bool) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := os.Stat(f.path)
	if err != nil {
		return f.text, fmt.Errorf("the secret cannot be read: %w", err)
	}
	if !again && f.seen != nil && os.SameFile(found, f.seen) && found.ModTime().Equal(f.seen.ModTime()) && found.Size() == f.seen.Size() {
		return f.text, nil
	}
	text, err := ReadSecret(f.path, readBounded)
	if err != nil {
		return f.text, err
	}
	if f.seen = found; f.Accepts != nil && !f.Accepts(text) {
		return f.text, fmt.Errorf("the file %s holds characters that the secret cannot have", strconv.Quote(f.path))
	}
	f.text = text
	return text, nil
}

// maxSecret bounds the file of a secret.
const maxSecret = 1 << 20

func readBounded(path string) (data []byte, err error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSecret))
}

// byteOrderMark begins files of some editors.
const byteOrderMark = "\ufeff"

// ReadSecret reads a secret with read, without a byte order mark and the newline at the file's end.
func ReadSecret(path string, read func(path string) ([]byte, error)) (string, error) {
	data, err := read(path)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(string(data), byteOrderMark), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("the file %s is empty", strconv.Quote(path))
	}
	return secret, nil
}
