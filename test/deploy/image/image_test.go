package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const uid = 65532

// made makes an image of an architecture, and returns it as the layout on the disk has it.
func made(t *testing.T, arch string) v1.Image {
	t.Helper()
	to := t.TempDir()
	if err := run(t.Context(), []string{arch}, to); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(to, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatal(manifest, err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// unpack writes the files of an image below a folder, each as the image has it.
func unpack(t *testing.T, image v1.Image, root string) (names []string) {
	t.Helper()
	text := mutate.Extract(image)
	defer text.Close()
	for in := tar.NewReader(text); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 && h.Typeflag != tar.TypeSymlink {
			t.Errorf("%s is %o of %d", h.Name, h.Mode, h.Uid)
		}
		at := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(at, fs.FileMode(h.Mode)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if h.Typeflag == tar.TypeSymlink {
			if err := os.Symlink(h.Linkname, at); err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
			continue
		}
		data, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(at, data, fs.FileMode(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// The same commit makes the same image, it is small, and its programs run in it as a user that owns nothing.
func TestImage(t *testing.T) {
	image := made(t, runtime.GOARCH)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := made(t, runtime.GOARCH).Digest(); err != nil || again != digest {
		t.Errorf("%s, and then %s: %v", digest, again, err)
	}
	size, err := sizeOf(image)
	if err != nil || size > 14e6 {
		t.Errorf("%d bytes compressed: %v", size, err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" || config.Config.Labels["org.opencontainers.image.revision"] == "" || config.OS != "linux" {
		t.Errorf("%+v, %v", config, err)
	}
	root := t.TempDir()
	names := unpack(t, image, root)
	licences := 0
	for _, name := range names {
		if strings.HasPrefix(name, "usr/share/licenses/") {
			licences++
		}
	}
	if licences < 20 {
		t.Errorf("%d licences: %q", licences, names)
	}
	if os.Geteuid() != 0 {
		t.Skip("the programs were not run in the image: only root may change the root folder")
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	var inside running = func(env []string, program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/usr/local/bin/"+program, args...)
		cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/local/bin"}, env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd
	}
	says := func(want string, env []string, program string, args ...string) {
		t.Helper()
		if out, err := inside(env, program, args...).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s %q: %v\n%s", program, args, err, out)
		}
	}
	says(config.Config.Labels["org.opencontainers.image.version"], nil, "producer", "--version")
	says("lost       0", nil, "dispatcher", "demo")
	says("", nil, "dispatcher", "config", "check")
	starts(t, inside, []string{"TUNDISH_DISPATCHER_LISTEN=" + freeAddress(t), "TUNDISH_PRODUCER_LISTEN=" + freeAddress(t), "TUNDISH_REDIS_EMBEDDED_LISTEN=" + freeAddress(t)})()
	hasRoots(t, root)
	trusts(t, root, inside)
	nobody := func(env []string, program string, args ...string) *exec.Cmd {
		cmd := inside(env, program, args...)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 71077, Gid: 71077} // one that is nowhere, as Kubernetes' restricted policy picks
		return cmd
	}
	server, arrived := receiver(httptest.NewServer)
	defer server.Close()
	sends(t, nobody, nil, configuration(t, root, server.URL), arrived)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
