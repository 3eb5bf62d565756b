// Package redistest starts Redis for tests and benchmarks: real redis-server
// processes that can be killed, restarted and stopped, and miniredis.
//
// Scripts are tested on the real server; miniredis agrees with it in most
// things and is silent about some faults (numbers that lose digits, limits of
// unpack). [Both] runs a test on the two.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	readyWithin   = 30 * time.Second // machines are busy
	logTail       = 4 << 10          // bytes of the log shown when a start fails
	maxSocketPath = 103              // the bound of every Unix
)

// errPortTaken says that another process bound the port first.
var errPortTaken = errors.New("port is taken")

// Server is one redis-server process with its own directory, unix socket and
// loopback port. All three stay the same over [Server.Restart]. Its methods may
// be called from any goroutine.
type Server struct {
	dir     string
	ownDir  bool // made by us, removed by Close
	port    int
	held    net.PacketConn // keeps port ours, see reserve
	tlsPort int
	config  string // file of the server, "" for none
	args    []string
	env     []string // on top of our own
	session bool     // of its own: see startProcess

	mu      sync.Mutex
	process *process // nil when killed
	clients []*redis.Client
	own     *redis.Client // of the harness, one of clients
	closed  bool

	signalled bool // killed or stopped, once at least
}

// Run starts a server that keeps its files in dir. "" is a temporary directory, in memory if possible, that [Server.Close] removes. Persistence is off
// unless args, which are last on the command line, turn it on, such as "--appendonly", "yes". The server is in a session of its own, as a daemon is. Run
// returns when the server responds. In tests use [Start].
func Run(dir string, args ...string) (*Server, error) {
	return run(&Server{dir: dir, args: args, session: true})
}

func run(s *Server) (*Server, error) {
	dir := s.dir
	if dir == "" {
		temp, err := tempDir()
		if err != nil {
			return nil, err
		}
		s.dir, s.ownDir = temp, true
	}
	if err := s.firstStart(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// tempDir makes a directory, in memory if the system has room for it. A server stands still until the disk has each change of its cluster or sentinel
// configuration and each copy of its master's data, which took up to half a minute. The long names of t.TempDir do not fit into a socket's path.
func tempDir() (string, error) {
	const memory, room, pattern = "/dev/shm", 1 << 30, "redistest-"
	var fs syscall.Statfs_t
	if syscall.Statfs(memory, &fs) == nil && fs.Bavail >= room/uint64(fs.Bsize) {
		if dir, err := os.MkdirTemp(memory, pattern); err == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	return dir, nil
}

func (s *Server) firstStart() error {
	absolute, err := filepath.Abs(s.dir)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.dir = absolute
	if len(s.Socket()) > maxSocketPath {
		return fmt.Errorf("redistest: %s: too long for a unix socket, at most %d bytes", s.Socket(), maxSocketPath)
	}
	for range 10 {
		if s.port, s.held, err = reserve(); err != nil {
			return err
		}
		if err = s.Restart(); !errors.Is(err, errPortTaken) {
			return err
		}
		_ = s.held.Close() // another program has it
	}
	return err
}

// reserve finds a free port and keeps it until held is closed, also while its
// server is down. A process that has bound the UDP port of a number owns its
// TCP port. The port and the one 10,000 above it, for a cluster's bus, are below
// the ports that the kernel gives to outgoing connections.
func reserve() (port int, held net.PacketConn, err error) {
	for range 1000 {
		port = 12_000 + rand.IntN(10_000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if held, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", addr); err == nil {
			return port, held, listener.Close()
		}
		_ = held.Close()
	}
	return 0, nil, fmt.Errorf("redistest: no free port: %w", err)
}

// Addr returns the host and port, for clients, proxies and other processes.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address as redis://host:port.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Socket returns the path of the unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Dir returns the directory with the server's files and redis.log.
func (s *Server) Dir() string { return s.dir }

// Client returns a new client on the unix socket; close it by Close. It never retries, so a test sees each failure, and obeys the context's deadline;
// without one it waits for as long as a busy machine may take.
func (s *Server) Client() *redis.Client {
	client := newClient("unix", s.Socket())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, client)
	return client
}

func newClient(network, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network:                  network,
		Addr:                     addr,
		MaxRetries:               -1,
		DialTimeout:              readyWithin,
		ReadTimeout:              readyWithin, // go-redis waits for 3 s
		WriteTimeout:             readyWithin,
		PoolTimeout:              readyWithin,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Kill sends SIGKILL and waits until the process is gone. A server that does not run stays as it is.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

func (s *Server) killLocked() {
	s.signalled = true
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
}

// Restart kills the server if it runs, starts it again with the same directory, port and arguments, and returns when it responds and has loaded its
// data.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: restart of a closed server")
	}
	if s.process != nil {
		s.killLocked()
	}
	args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--unixsocket", s.Socket(), "--dir", s.dir}
	if s.config != "" {
		args = append([]string{s.config}, args...)
	} else {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, s.args...)
	logPath := filepath.Join(s.dir, "redis.log")
	p, err := s.startProcess(logPath, args)
	if err != nil {
		return err
	}
	if err := waitReady(s.Socket(), p.exited); err != nil {
		p.kill()
		log, _ := os.ReadFile(logPath) // best effort: the error is the news
		if strings.Contains(string(log), "Address already in use") {
			err = errPortTaken
		}
		return fmt.Errorf("redistest: redis-server at %s: %w; its log ends:\n%s", s.Addr(), err, log[max(0, len(log)-logTail):])
	}
	s.process = p
	return nil
}

// Stop halts the process with SIGSTOP: connections stay open and get no replies until [Server.Cont].
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont resumes a stopped process, with SIGCONT.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalled = true
	if s.process != nil {
		s.process.signal(sig)
	}
}

// Close closes the clients, kills the server and removes the directory if Run
// made it. Closing twice is harmless.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, client := range s.clients {
		_ = client.Close() // the only error is that the test closed it before
	}
	s.clients = nil
	s.killLocked()
	if s.held != nil {
		_ = s.held.Close() // a second time it is closed already
	}
	if s.ownDir {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// process is a running redis-server and the guard that kills it when we die
// without having done so, as a test that times out does.
type process struct {
	server, guard *exec.Cmd
	exited        chan struct{}
}

// startProcess starts the server so that an interrupt from the terminal reaches only this process. Linux shares the CPUs among sessions. A bench whose
// Redis has a session of its own measures Redis next to an equally large load. Next to tests that fill the CPUs, such a Redis stands still for seconds:
// up to 6.6 s, on Linux 6.18 with one of two cores busy. In our session it does not.
func (s *Server) startProcess(logPath string, args []string) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer log.Close()
	p := &process{server: exec.Command("redis-server", args...), exited: make(chan struct{})}
	p.server.Env = append(os.Environ(), s.env...)
	p.server.Stdout, p.server.Stderr = log, log
	p.server.SysProcAttr = &syscall.SysProcAttr{Setsid: s.session, Setpgid: !s.session}
	if err := p.server.Start(); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	go func() {
		defer close(p.exited)
		_ = p.server.Wait() // it was killed, so its status has no meaning
	}()
	// The guard reads from a pipe whose other end closes with our process.
	p.guard = exec.Command("sh", "-c", `read -r _; kill -9 "$1"`, "guard", strconv.Itoa(p.server.Process.Pid))
	if _, err = p.guard.StdinPipe(); err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		p.guard = nil
		p.kill()
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return p, nil
}

func (p *process) signal(sig os.Signal) {
	_ = p.server.Process.Signal(sig) // the only error is that it has ended
}

func (p *process) kill() {
	if p.guard != nil {
		_ = p.guard.Process.Kill()
		_ = p.guard.Wait()
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// waitReady asks every millisecond until the server replies anything other than that it is loading. It asks on the socket, which no other server has.
func waitReady(socket string, exited <-chan struct{}) error {
	timeout := time.After(readyWithin)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-exited:
			return errors.New("has exited")
		case <-timeout:
			return fmt.Errorf("not ready after %s: %w", readyWithin, last)
		case <-tick.C:
		}
		if last = ping(socket); last == nil {
			return nil
		}
	}
}

func ping(socket string) error {
	conn, err := net.DialTimeout("unix", socket, readyWithin)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(readyWithin)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(answer, "-LOADING") {
		return errors.New(strings.TrimSpace(answer))
	}
	return nil // an error such as NOAUTH also means that the server is up
}
