package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tundish-io/tundish/test/harness"
)

// Hosts of their own for single processes: namespaces of Linux. Some machines give none to users, among them those of CI: there the tests are skipped.

// apart is what a process needs that runs in a namespace of the network of its own.
type apart struct {
	Setup    string      // shell: how its network differs from one in which the loopback works
	Forwards [][2]string // addresses in the namespace, and where connections to them go
	Command  []string
}

const apartVariable = "TUNDISH_TEST_APART"

func init() { harness.Mains[apartVariable] = runApart }

// commandApart returns the command of a process that has a network of its own. Its API, at the address ops, is reached from outside.
// What it calls inside, by address, is the socket of outside.
func commandApart(t *testing.T, setup, ops string, calls map[string]string, command []string) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apart-") // a socket has a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	api := filepath.Join(dir, "api")
	a := apart{Setup: setup, Forwards: [][2]string{{api, ops}}, Command: command}
	for address, socket := range calls {
		a.Forwards = append(a.Forwards, [2]string{address, socket})
	}
	forward(t, ops, api)
	value, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--user", "--map-root-user", "--net", "env", apartVariable + "=" + string(value), os.Args[0]}
}

// needsNamespaces skips a test where the machine gives no such namespaces, or where a command in them fails.
func needsNamespaces(t *testing.T, flags, command string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", flags, "sh", "-ec", command).CombinedOutput(); err != nil {
		t.Skipf("this test needs user namespaces (unshare %s) in which this works: %s: %v %s", flags, command, err, out)
	}
}

const loopback = "ip link set lo up; "

// runApart is the main of a process in its namespace: it makes the network, passes connections on, and runs the command.
func runApart(value string) error {
	var a apart
	if err := json.Unmarshal([]byte(value), &a); err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-ec", loopback+a.Setup).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, f := range a.Forwards {
		listener, err := listenAt(f[0])
		if err != nil {
			return err
		}
		go pass(listener, f[1])
	}
	runtime.LockOSThread() // the command ends with this thread
	command := exec.Command(a.Command[0], a.Command[1:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		for s := range ends {
			_ = command.Process.Signal(s)
		}
	}()
	if err := command.Wait(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// forward passes connections on from one address to another until the test ends.
func forward(t *testing.T, from, to string) {
	t.Helper()
	listener, err := listenAt(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go pass(listener, to)
}

// networkOf is that of an address: a path is one of a socket.
func networkOf(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix"
	}
	return "tcp"
}

func listenAt(address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), networkOf(address), address)
}

func pass(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue
		}
		go func() {
			defer from.Close()
			conn, err := new(net.Dialer).DialContext(context.Background(), networkOf(to), to)
			if err != nil {
				return
			}
			defer conn.Close()
			go func() {
				_, _ = io.Copy(conn, from)
				conn.Close()
			}()
			_, _ = io.Copy(from, conn)
		}()
	}
}

// resolvedBy returns the command of a process whose resolver is a server of DNS of the test, at an address of its own. For any name it has the
// address 127.0.1.1. answer changes a reply, or says that there is none; nil leaves it.
func resolvedBy(t *testing.T, server string, answer func(reply *dnsmessage.Message) bool, command []string) []string {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(server, "53"))
	if err != nil {
		t.Skipf("this test needs a resolver at port 53 of the loopback: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	go serveNames(conn, answer)
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver "+server+"\noptions timeout:1 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return append([]string{
		"unshare", "--user", "--map-root-user", "--mount", "env", "GODEBUG=netdns=go",
		"sh", "-ec", `mount --bind "$0" /etc/resolv.conf; exec "$@"`, path,
	}, command...)
}

func serveNames(conn net.PacketConn, answer func(reply *dnsmessage.Message) bool) {
	b := make([]byte, 1<<10)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if query.Unpack(b[:n]) != nil || len(query.Questions) == 0 {
			continue
		}
		q := query.Questions[0]
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true}, Questions: query.Questions[:1]}
		if q.Type == dnsmessage.TypeA {
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 1, 1}},
			}}
		}
		if answer != nil && !answer(&reply) {
			continue
		}
		if packed, err := reply.Pack(); err == nil {
			_, _ = conn.WriteTo(packed, from)
		}
	}
}
