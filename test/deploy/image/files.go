package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is one of the image.
type file struct {
	name string // without the first slash
	mode int64
	data []byte
	link string // of a symbolic link: the file beside it
}

const built = "github.com/tundish-io/tundish/internal/build."

// build compiles the dispatcher, which is the producer too where it is called so.
func (s source) build(ctx context.Context, arch string) ([]file, error) {
	folder, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	flags := fmt.Sprintf("-s -w -buildid= -X %sversion=%s -X %scommit=%s -X %sdate=%s", built, s.version, built, s.commit, built, s.at.Format(time.RFC3339))
	// The exporter of traces brings gRPC, which is never called; without its own tracing, an image is 160 kB smaller.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", flags, "-o", folder+"/", "./cmd/dispatcher")
	build.Dir, build.Stderr = s.root, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-mod=readonly")
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "dispatcher"))
	if err != nil {
		return nil, err
	}
	return []file{{name: "usr/local/bin/dispatcher", mode: 0o755, data: data}, {name: "usr/local/bin/producer", mode: 0o777, link: "dispatcher"}}, nil
}

const licencesIn = "usr/share/licenses"

// writeLicences writes the licences of the image of amd64 below a folder.
func writeLicences(ctx context.Context, to string) error {
	source, err := sourceOf(ctx)
	if err != nil {
		return err
	}
	files, err := source.licences(ctx, "amd64")
	if err != nil {
		return err
	}
	for _, f := range files {
		at := filepath.Join(to, strings.TrimPrefix(f.name, licencesIn))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// licences are the texts of all modules that are in the programs, and ours.
func (s source) licences(ctx context.Context, arch string) ([]file, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", "./cmd/...")
	list.Dir, list.Stderr = s.root, os.Stderr
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	folders := map[string]string{}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct{ Module *struct{ Path, Dir string } }
		if err := in.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if one.Module != nil {
			folders[one.Module.Path] = one.Module.Dir
		}
	}
	var files []file
	for module, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		found := 0
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(word string) bool { return strings.HasPrefix(upper, word) }) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			found++
			files = append(files, file{name: path.Join(licencesIn, module, e.Name()), mode: 0o644, data: data})
		}
		if found == 0 {
			return nil, fmt.Errorf("module %s has no licence in %s", module, folder)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// layerOf makes a layer of files, with the folders that they are in; all are root's, and of the time of the commit.
func layerOf(files []file, at time.Time) (v1.Layer, error) {
	var text bytes.Buffer
	out := tar.NewWriter(&text)
	folders := map[string]bool{".": true}
	add := func(h *tar.Header, data []byte) error {
		h.ModTime, h.Format = at, tar.FormatPAX
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	for _, f := range files {
		var missing []string
		for dir := path.Dir(f.name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			missing = append(missing, dir)
		}
		slices.Reverse(missing)
		for _, dir := range missing {
			if err := add(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
				return nil, err
			}
		}
		if f.link != "" {
			if err := add(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: f.mode}, nil); err != nil {
				return nil, err
			}
			continue
		}
		if err := add(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))}, f.data); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	// Compressed once, here: the library would do so for the digest, the size, the layout and the file, each time anew.
	var small bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := text.WriteTo(compressed); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(small.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}
