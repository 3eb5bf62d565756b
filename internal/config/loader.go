package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// loader gathers the layers of a configuration and their faults.
type loader struct {
	doc      document
	env      map[string]string
	readFile func(string) ([]byte, error)

	secretsElsewhere bool

	variables map[string]string // path of a key → the variable that sets it

	secretFiles map[string]string // path of a key → the file that its secret was read from

	faults Faults
	failed map[string]bool // paths that have a fault, and each with its file
}

// fail notes a fault of a key, and where the key was set. It ignores a second fault of the same key there, which is mostly a consequence of the first.
func (l *loader) fail(p place, value, format string, args ...any) {
	f := Fault{File: l.doc.file, Line: l.doc.line(p.path), Key: p.shown, Value: clip(value), Reason: fmt.Sprintf(format, args...)}
	if name, ok := l.variables[unindexed(p.path)]; ok {
		f.File, f.Line = "env "+name, 0
	}
	once := f.File + " " + p.path
	if l.failed[once] {
		return
	}
	l.failed[once], l.failed[p.path] = true, true
	l.faults = append(l.faults, f)
}

func newLoader(o Options) *loader {
	l := &loader{
		env:      map[string]string{},
		readFile: o.ReadFile,

		secretsElsewhere: o.SecretsElsewhere,

		variables: map[string]string{}, secretFiles: map[string]string{},
		failed: map[string]bool{},
	}
	if l.readFile == nil {
		l.readFile = ReadFile
	}
	for _, entry := range o.Env {
		name, value, _ := strings.Cut(entry, "=")
		l.env[name] = value
	}
	return l
}

// ReadFile reads a file that is not unreasonably long.
func ReadFile(path string) (data []byte, err error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("has more than %d bytes", maxFile)
	}
	return data, err
}
