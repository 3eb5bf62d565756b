//go:build ship

package main

import (
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs of the image for arm64 run where QEMU takes the place of such a processor: they tell their version, read a configuration, and deliver a job.
func TestARM64(t *testing.T) {
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Skip("not verified: there is no qemu-aarch64-static (package qemu-user-static)")
	}
	image := made(t, "arm64")
	root := t.TempDir()
	unpack(t, image, root)
	var inside running = func(env []string, program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), emulator, append([]string{filepath.Join(root, "usr/local/bin", program)}, args...)...)
		cmd.Env = append([]string{"PATH=/usr/local/bin"}, env...)
		return cmd
	}
	server, arrived := receiver(httptest.NewServer)
	defer server.Close()
	config := filepath.Join(root, configuration(t, root, server.URL))
	for _, args := range [][]string{{"--version"}, {"config", "check", "--config", config}} {
		if out, err := inside(nil, "dispatcher", args...).CombinedOutput(); err != nil {
			t.Errorf("dispatcher %q: %v\n%s", args, err, out)
		}
	}
	if said := sends(t, inside, nil, config, arrived); !strings.Contains(said, "stopped") {
		t.Errorf("the dispatcher did not tell its end: %s", said)
	}
}
