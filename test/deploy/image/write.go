package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// buildInfo is what a build is made of, said by the caller: the builder of a Dockerfile has no git.
type buildInfo struct {
	version, revision, created string
}

func (t buildInfo) source() (source, error) {
	at, err := time.Parse(time.RFC3339, t.created)
	if err != nil {
		return source{}, fmt.Errorf("-created %q: want a time such as 2026-01-31T12:00:00Z", t.created)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	return source{root, t.version, t.revision, at.UTC()}, err
}

// parts are the files of the image: the programs, and the licences. Each part is a layer.
func (s source) parts(ctx context.Context, arch string) ([][]file, error) {
	programs, err := s.build(ctx, arch)
	if err != nil {
		return nil, err
	}
	licences, err := s.licences(ctx, arch)
	return [][]file{programs, licences}, err
}

// writeFiles writes the files of the image of an architecture below a folder, with their modes and the time of the commit.
func writeFiles(ctx context.Context, of buildInfo, arch, to string) error {
	s, err := of.source()
	if err != nil {
		return err
	}
	parts, err := s.parts(ctx, arch)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for _, f := range part {
			if err := f.write(to, s.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes the folders of the file too. The umask of the caller changes no mode.
func (f file) write(to string, at time.Time) error {
	path := filepath.Join(to, filepath.FromSlash(f.name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.link != "" {
		return os.Symlink(f.link, path)
	}
	if err := os.WriteFile(path, f.data, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, os.FileMode(f.mode)); err != nil {
		return err
	}
	return os.Chtimes(path, at, at)
}
