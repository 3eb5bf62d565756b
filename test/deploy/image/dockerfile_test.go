//go:build ship

package main

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// The Dockerfile makes the image that `make image` makes: the same files, with the same modes, and the same configuration. Debian's buildah builds it. Its base,
// golang:1.26, is a stand-in without a file: the Go of this machine and its folder /usr are mounted.
func TestDockerfile(t *testing.T) {
	b := newBuilder(t)
	source, err := sourceOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, got := made(t, runtime.GOARCH), b.build(source)
	if diff := cmp.Diff(contents(t, want), contents(t, got)); diff != "" {
		t.Errorf("the files of `make image` (-) and of the Dockerfile (+):\n%s", diff)
	}
	if diff := cmp.Diff(config(t, want), config(t, got)); diff != "" {
		t.Errorf("the configuration of `make image` (-) and of the Dockerfile (+):\n%s", diff)
	}
}

// builder is buildah with a store of its own, which has the stand-in.
type builder struct {
	t      *testing.T
	folder string
}

// newBuilder skips the test where buildah cannot run a command in a container.
func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{t, t.TempDir()}
	if out, err := exec.CommandContext(t.Context(), "../../../scripts/need", "buildah", "buildah").CombinedOutput(); err != nil {
		t.Skipf("not verified: %v\n%s", err, out)
	}
	root := filepath.Join(b.folder, "root")
	for _, name := range []string{"usr/local/go", "go/pkg/mod", "root/.cache/go-build", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	container := strings.TrimSpace(b.run("from", "scratch"))
	b.run("copy", container, root, "/")
	if out, err := b.command("run", "--isolation", "chroot", "--volume", "/usr:/usr:ro", container, "/bin/sh", "-c", "true").CombinedOutput(); err != nil {
		t.Skipf("not verified: buildah runs no container here: %v\n%s", err, out)
	}
	args := []string{"config"}
	for _, env := range []string{"PATH=/usr/local/go/bin:/usr/bin:/bin", "GOPATH=/go", "GOTOOLCHAIN=local", "GOPROXY=off", "GOFLAGS=-trimpath", "HOME=/root"} {
		args = append(args, "--env", env)
	}
	b.run(append(args, container)...)
	b.run("commit", container, "docker.io/library/golang:1.26")
	return b
}

func (b *builder) command(verb string, args ...string) *exec.Cmd {
	flags := []string{"--root", filepath.Join(b.folder, "store"), "--runroot", filepath.Join(b.folder, "run"), "--storage-driver", "vfs", verb}
	return exec.CommandContext(b.t.Context(), "buildah", append(flags, args...)...)
}

func (b *builder) run(args ...string) string {
	b.t.Helper()
	cmd := b.command(args[0], args[1:]...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("buildah %q: %v\n%s%s", args, err, out, failure.String())
	}
	return string(out)
}

// build builds the Dockerfile of the repository.
func (b *builder) build(s source) v1.Image {
	b.t.Helper()
	args := []string{"bud", "--isolation", "chroot", "--pull-never", "--layers=false", "--tag", "tundish:test", "--volume", "/usr:/usr:ro"}
	for name, at := range map[string]string{"GOROOT": "/usr/local/go:ro", "GOMODCACHE": "/go/pkg/mod:ro", "GOCACHE": "/root/.cache/go-build"} {
		out, err := exec.CommandContext(b.t.Context(), "go", "env", name).Output()
		if err != nil {
			b.t.Fatal(err)
		}
		args = append(args, "--volume", strings.TrimSpace(string(out))+":"+at)
	}
	for name, value := range map[string]string{"VERSION": s.version, "REVISION": s.commit, "CREATED": s.at.Format(time.RFC3339), "TARGETARCH": runtime.GOARCH} {
		args = append(args, "--build-arg", name+"="+value)
	}
	b.run(append(args, s.root)...)
	to := filepath.Join(b.folder, "oci")
	b.run("push", "tundish:test", "oci:"+to)
	index, err := layout.ImageIndexFromPath(to)
	if err != nil {
		b.t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		b.t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		b.t.Fatal(err)
	}
	return image
}

// contents tells of each file and folder of an image its owner, mode and text.
func contents(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	text := mutate.Extract(image)
	defer text.Close()
	all := map[string]string{}
	for in := tar.NewReader(text); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, in); err != nil {
			t.Fatal(err)
		}
		all[strings.Trim(h.Name, "/")] = fmt.Sprintf("%c %o of %d:%d, %d bytes %x", h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid, h.Size, sum.Sum(nil))
	}
}

// config is what an image says of itself; buildah adds a label of its own.
func config(t *testing.T, image v1.Image) v1.Config {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	delete(file.Config.Labels, "io.buildah.version")
	return file.Config
}
