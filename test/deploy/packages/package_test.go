package packages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The packages of this machine's architecture, built by a clock of 1970, have each file with its mode, owner and time.
func TestPackage(t *testing.T) {
	tool(t, "dpkg-deb", "it is in every Debian and Ubuntu")
	made := ship(t, root, []string{"SOURCE_DATE_EPOCH=0"}, oneTarget...)
	deb := made.find(t, "*_"+debArch+".deb")
	checkFiles(t, "the deb", debFiles(t, deb))
	for line := range strings.Lines(command(t, root, []string{"TZ=UTC"}, "dpkg-deb", "--contents", deb)) {
		if !strings.Contains(line, " 1970-01-01 00:00 ") {
			t.Errorf("not of 1970: %s", line)
		}
	}
	made.checkSBOMs(t, 2)
	for line := range strings.Lines(command(t, made.dist, nil, "sha256sum", "--check", "SHA256SUMS")) {
		if !strings.HasSuffix(line, ": OK\n") {
			t.Error(line)
		}
	}
	if listed := strings.Count(made.sums(t), "\n"); listed != 5 {
		t.Errorf("%d sums, want those of an archive, a deb, an rpm and two SBOMs:\n%s", listed, made.sums(t))
	}

	folder := t.TempDir()
	command(t, root, nil, "dpkg-deb", "--raw-extract", deb, folder)
	if got := readFile(t, folder, "DEBIAN/conffiles"); got != "/etc/tundish/config.toml\n" {
		t.Errorf("the configuration files are %q", got)
	}
	checkConfiguration(t, folder)
	for _, program := range []string{"dispatcher", "producer"} {
		checkUnit(t, folder, program)
		command(t, folder, nil, "bash", "-n", "usr/share/bash-completion/completions/"+program)
		said := command(t, folder, nil, filepath.Join(folder, "usr/bin", program), "--version")
		if !regexp.MustCompile(`^` + program + ` v\d+\.\d+\.\d+.*, commit [0-9a-f]{12} of 1970-01-01T00:00:00Z, go`).MatchString(said) {
			t.Errorf("%s --version says %s", program, said)
		}
		if manual := command(t, folder, nil, "gzip", "-dc", "usr/share/man/man1/"+program+".1.gz"); !strings.Contains(manual, ".SS \""+program+" key new NAME") {
			t.Errorf("the manual of %s lacks a command:\n%.1000s", program, manual)
		}
	}
}

// checkConfiguration wants a valid configuration that names a Redis, because two units cannot share the embedded store.
func checkConfiguration(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, "etc/tundish/config.toml")
	command(t, folder, nil, filepath.Join(folder, "usr/bin/dispatcher"), "config", "check", "--config", path)
	if text := readFile(t, folder, "etc/tundish/config.toml"); !strings.HasPrefix(text, `redis.url = "redis://`) {
		t.Errorf("it begins with %.80q", text)
	}
}

// checkUnit wants the unit of the repository, with the paths of a package, and the group that may read the configuration.
func checkUnit(t *testing.T, folder, program string) {
	t.Helper()
	name := "tundish-" + program + ".service"
	text := readFile(t, folder, "usr/lib/systemd/system/"+name)
	for _, line := range []string{"SupplementaryGroups=tundish", "DynamicUser=yes"} {
		if strings.Count(text, "\n"+line+"\n") != 1 {
			t.Errorf("%s does not say %s once:\n%s", name, line, text)
		}
	}
	if !strings.Contains(text, "\nExecStart=/usr/bin/"+program+" ") || strings.Contains(text, "/usr/local") {
		t.Errorf("%s has a path that is not of a package:\n%s", name, text)
	}
	tool(t, "systemd-analyze", "install systemd")
	// The programs of the package are not installed here.
	here := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(here, []byte(strings.ReplaceAll(text, "/usr/bin/"+program, filepath.Join(folder, "usr/bin", program))), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := command(t, folder, nil, "systemd-analyze", "verify", here); said != "" {
		t.Errorf("%s: %s", name, said)
	}
}

func readFile(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
