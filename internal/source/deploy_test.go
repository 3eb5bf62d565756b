package source_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// The commands of deploy/redis/README.md set the passwords, and show them on no command line.
func TestPasswordsOfTheRedisGuide(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("there is no redis-cli here")
	}
	guide := must.Get(os.ReadFile("../../deploy/redis/README.md"))(t)
	_, block, _ := strings.Cut(string(guide), "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the guide has no commands")
	}
	users := must.Get(os.ReadFile("../../deploy/redis/users.acl"))(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	acl := write("users.acl", string(users), 0o600)
	server := redistest.Start(t, "--aclfile", acl)
	_, port, _ := strings.Cut(server.Addr(), ":")
	write("redis", "hunter2 of tundish\n", 0o600)
	write("redis-operator", "hunter2 of the operator\n", 0o600)
	seen := filepath.Join(dir, "seen")
	write("redis-cli", "#!/bin/sh\necho \"$@\" >> "+seen+"\nexec "+real+" -e -p "+port+" \"$@\"\n", 0o700)

	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.ReplaceAll(block, "/run/secrets", dir))
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, block)
	}
	lines, err := os.ReadFile(seen)
	if err != nil || strings.Count(string(lines), "\n") != strings.Count(block, "redis-cli") {
		t.Fatalf("%v, seen were %q", err, lines)
	}
	if strings.Contains(string(lines), "hunter2") {
		t.Errorf("a password is on a command line:\n%s", lines)
	}
	for user, password := range map[string]string{"tundish": "hunter2 of tundish", "default": "hunter2 of the operator"} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: password})
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		_ = client.Close()
	}
	anybody := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer anybody.Close()
	if anybody.Ping(t.Context()).Err() == nil {
		t.Error("Redis answers without a password")
	}
	if saved, err := os.ReadFile(acl); err != nil || strings.Count(string(saved), "#") != 2 {
		t.Errorf("saved was %q, %v", saved, err)
	}
}
