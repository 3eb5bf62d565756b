// Command image makes the image of Tundish: both programs, their licences, and nothing else, for linux on amd64 and arm64. It needs no Docker and no base
// image, and makes the same bytes of the same commit each time.
//
//	image [-arch amd64,arm64] [-to FOLDER]
//
// FOLDER gets an OCI layout (oci/) of all architectures, and a file for `docker load` of each (tundish-amd64.tar).
//
//	image -licences FOLDER
//
// FOLDER gets the licences alone, which packages have too.
//
//	image -files FOLDER [-arch amd64] -version VERSION -revision COMMIT -created TIME
//
// FOLDER gets the files of the image: the Dockerfile uses it, where there is no git.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the programs: it is in no file of the image, and owns nothing.
const user = "65532:65532"

func main() {
	arches := flag.String("arch", "amd64,arm64", "architectures, with commas")
	to := flag.String("to", "image", "folder for the images")
	licences := flag.String("licences", "", "folder for the licences, instead of an image")
	files := flag.String("files", "", "folder for the files of the image, instead of an image")
	var of buildInfo
	flag.StringVar(&of.version, "version", "", "with -files: the version")
	flag.StringVar(&of.revision, "revision", "", "with -files: the commit")
	flag.StringVar(&of.created, "created", "", "with -files: the time of the commit, such as 2026-01-31T12:00:00Z")
	flag.Parse()
	work := func(ctx context.Context) error { return run(ctx, strings.Split(*arches, ","), *to) }
	switch {
	case *licences != "":
		work = func(ctx context.Context) error { return writeLicences(ctx, *licences) }
	case *files != "":
		work = func(ctx context.Context) error { return writeFiles(ctx, of, *arches, *files) }
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arches []string, to string) error {
	source, err := sourceOf(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range arches {
		image, err := source.image(ctx, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		tag, err := name.NewTag("tundish:" + source.tag())
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(filepath.Join(to, "tundish-"+arch+".tar"), tag, image); err != nil {
			return err
		}
		size, err := sizeOf(image)
		if err != nil {
			return err
		}
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s %s %.1f MB compressed\n", arch, digest, float64(size)/1e6)
	}
	oci := filepath.Join(to, "oci")
	if err := os.RemoveAll(oci); err != nil {
		return err
	}
	if _, err := layout.Write(oci, index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err == nil {
		fmt.Println("index", digest)
	}
	return err
}

func sizeOf(image v1.Image) (int64, error) {
	layers, err := image.Layers()
	sum := int64(0)
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, err
}

// source is what an image is made of.
type source struct {
	root    string // of the repository
	version string
	commit  string
	at      time.Time // of the commit
}

func sourceOf(ctx context.Context) (source, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return source{}, fmt.Errorf("an image is made in a clone of the repository: git rev-parse: %w", err)
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	stamp, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return source{}, err
	}
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		stamp = given
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds since 1970", stamp)
	}
	version, err := git("describe", "--tags", "--always", "--dirty")
	return source{root, version, commit, time.Unix(seconds, 0).UTC()}, err
}

// tag is the version as a tag may be.
func (s source) tag() string { return strings.ReplaceAll(s.version, "+", "-") }

func (s source) image(ctx context.Context, arch string) (v1.Image, error) {
	parts, err := s.parts(ctx, arch)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, part := range parts {
		layer, err := layerOf(part, s.at)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.at}, CreatedBy: "make image"}})
		if err != nil {
			return nil, err
		}
	}
	image, err = mutate.ConfigFile(image, s.config(image, arch))
	if err != nil {
		return nil, err
	}
	annotated, _ := mutate.Annotations(image, s.labels()).(v1.Image)
	return annotated, nil
}

func (s source) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "tundish",
		"org.opencontainers.image.description": "Queue-shaping dispatcher: bursts in, an even stream at the configured rate out",
		"org.opencontainers.image.source":      "https://github.com/tundish-io/tundish",
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.revision":    s.commit,
		"org.opencontainers.image.created":     s.at.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

func (s source) config(image v1.Image, arch string) *v1.ConfigFile {
	made, _ := image.ConfigFile()
	config := made.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: s.at}
	config.Config = v1.Config{
		User: user, Env: []string{"PATH=/usr/local/bin"}, Cmd: []string{"dispatcher", "--help"}, WorkingDir: "/", Labels: s.labels(),
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}}, StopSignal: "SIGTERM",
	}
	return config
}
