//go:build ship

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Two builds of one tree in two folders have one sum, every SBOM has the modules of its program, and lintian has no objection.
func TestRelease(t *testing.T) {
	made := ship(t, root, nil)
	made.checkSBOMs(t, 8)
	sums := made.sums(t)
	if listed := strings.Count(sums, "\n"); listed != 16 {
		t.Errorf("%d sums, want those of 4 archives, 2 debs, 2 rpms and 8 SBOMs:\n%s", listed, sums)
	}
	deb, rpm := made.find(t, "*_"+debArch+".deb"), made.find(t, "*."+rpmArch[debArch]+".rpm")
	t.Run("lintian", func(t *testing.T) { lintian(t, deb) })
	t.Run("chroot", func(t *testing.T) {
		folder := chroot(t)
		t.Run("deb", func(t *testing.T) { installDeb(t, folder, deb) })
		t.Run("rpm", func(t *testing.T) { installRPM(t, folder, rpm) })
	})

	tree := filepath.Join(t.TempDir(), "elsewhere", "a longer name")
	command(t, root, nil, "git", "clone", "--quiet", "--shared", root, tree)
	command(t, root, nil, "bash", "-o", "pipefail", "-c", `git ls-files -z -co --exclude-standard | tar --null -T - -c | tar -x -C "$0"`, tree)
	if again := ship(t, tree, nil).sums(t); again != sums {
		t.Errorf("a second build has other sums:\n%s\nthe first one had\n%s", again, sums)
	}
}

var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// lintian reads the deb by Debian's policy. What it may say is in deploy/packages/lintian-overrides, with the reason.
func lintian(t *testing.T, deb string) {
	tool(t, "lintian", "install lintian")
	out := command(t, root, nil, "lintian", "--fail-on", "none", "--allow-root", "--show-overrides", deb)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "W: ") {
			t.Error(line)
		}
	}
	used := strings.Count(out, "O: ")
	listed := 0
	reason := false
	for line := range strings.Lines(readFile(t, root, "deploy/packages/lintian-overrides")) {
		switch comment := strings.HasPrefix(line, "#"); {
		case comment:
			reason = true
		case !reason:
			t.Errorf("the override %q has no reason in the line before", line)
		default:
			listed++
			reason = false
		}
	}
	if used < listed {
		t.Errorf("%d overrides, and lintian used %d:\n%s", listed, used, out)
	}
}

// chroot is a small Debian in a folder.
func chroot(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not verified: only root may install a package in a chroot")
	}
	debootstrap := tool(t, "debootstrap", "install debootstrap")
	folder := t.TempDir()
	for _, open := range []string{filepath.Dir(folder), folder} { // another user reads in it, too
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), debootstrap, "--variant=minbase", "bookworm", folder, "http://deb.debian.org/debian")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("not verified: debootstrap does not run here: %v\n%.2000s", err, out)
	}
	return folder
}

// within runs a command in a chroot.
func within(t *testing.T, folder string, name string, args ...string) string {
	t.Helper()
	return command(t, folder, []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}, "chroot", append([]string{folder, name}, args...)...)
}

const config = "/etc/tundish/config.toml"

// checkInstalled wants programs that run, and a configuration that root and the group tundish can read, and no other user.
func checkInstalled(t *testing.T, folder string) {
	t.Helper()
	for _, program := range []string{"dispatcher", "producer"} {
		if said := within(t, folder, program, "--version"); !strings.HasPrefix(said, program+" v") {
			t.Errorf("%s --version says %q", program, said)
		}
	}
	if mode := within(t, folder, "stat", "-c", "%a %U:%G", config); mode != "640 root:tundish\n" {
		t.Errorf("%s is %s", config, mode)
	}
	// A unit of DynamicUser runs so: a user and a group of its own, SupplementaryGroups=, and a user namespace of PrivateUsers=, which a kernel
	// does not make within a chroot.
	within(t, folder, "setpriv", "--reuid=61184", "--regid=61184", "--groups=tundish", "dispatcher", "config", "check", "--config", config)
	group := strings.Split(within(t, folder, "getent", "group", "tundish"), ":")[2]
	read := "setpriv --reuid=61184 --regid=61184 "
	command(t, folder, nil, "sh", "-c", read+"--groups="+group+" unshare --user cat ."+config)
	command(t, folder, nil, "sh", "-c", "! "+read+"--clear-groups cat ."+config+" 2>/dev/null")
}

// change appends a line to the configuration, as an operator would.
const edited = "# changed here"

func edit(t *testing.T, folder string) {
	t.Helper()
	within(t, folder, "sh", "-c", "echo '"+edited+"' >>"+config)
}

func checkEdited(t *testing.T, folder, when string) {
	t.Helper()
	if text := readFile(t, folder, config); !strings.Contains(text, edited) {
		t.Errorf("%s the change of the configuration is lost:\n%s", when, text)
	}
}

// next makes the deb of a later version, with another default configuration.
func next(t *testing.T, folder, version string) {
	t.Helper()
	within(t, folder, "sh", "-ec", `rm -rf /next && dpkg-deb -R /tundish.deb /next
		sed -i "s/^Version: .*/Version: `+version+`/" /next/DEBIAN/control
		echo "# default of `+version+`" >>/next`+config+`
		dpkg-deb -b /next /next.deb >/dev/null`)
}

// installDeb does what an operator does with a deb in its life.
func installDeb(t *testing.T, folder, deb string) {
	command(t, folder, nil, "cp", deb, filepath.Join(folder, "tundish.deb"))
	within(t, folder, "dpkg", "--install", "/tundish.deb")
	checkInstalled(t, folder)

	next(t, folder, "99.1-1")
	within(t, folder, "dpkg", "--install", "/next.deb")
	checkInstalled(t, folder)
	if text := readFile(t, folder, config); !strings.Contains(text, "default of 99.1-1") {
		t.Errorf("an upgrade does not bring its default to an unchanged configuration:\n%s", text)
	}

	edit(t, folder)
	next(t, folder, "99.2-1")
	within(t, folder, "dpkg", "--force-confdef", "--install", "/next.deb")
	checkInstalled(t, folder)
	checkEdited(t, folder, "after an upgrade")
	if text := readFile(t, folder, config); strings.Contains(text, "99.2-1") {
		t.Errorf("an upgrade wrote into a changed configuration:\n%s", text)
	}

	within(t, folder, "dpkg", "--remove", "tundish")
	checkEdited(t, folder, "after the removal")
	within(t, folder, "sh", "-c", "! test -e /usr/bin/dispatcher && ! test -e /usr/lib/systemd/system/tundish-dispatcher.service")

	within(t, folder, "sh", "-c", "echo secret >/etc/tundish/redis-password")
	within(t, folder, "dpkg", "--purge", "tundish")
	within(t, folder, "sh", "-c", "! test -e /etc/tundish")
	within(t, folder, "dpkg", "--install", "/tundish.deb") // the group is there already
	checkInstalled(t, folder)
	within(t, folder, "dpkg", "--purge", "tundish")
}

// installRPM does the same with an rpm. Its scripts run in the Debian of the chroot, so the names of what it needs are not those of packages there.
func installRPM(t *testing.T, folder, rpm string) {
	tool(t, "rpm", "install rpm")
	run := func(args ...string) string {
		return command(t, folder, nil, "rpm", append([]string{"--root", folder, "--nodeps"}, args...)...)
	}
	run("--install", rpm)
	checkInstalled(t, folder)
	edit(t, folder)
	run("--upgrade", "--replacepkgs", rpm)
	checkInstalled(t, folder)
	checkEdited(t, folder, "after an upgrade")
	run("--erase", "tundish")
	if text := readFile(t, folder, config+".rpmsave"); !strings.Contains(text, edited) {
		t.Errorf("the removal does not keep the changed configuration:\n%s", text)
	}
	within(t, folder, "sh", "-c", "! test -e /usr/bin/dispatcher")
}
