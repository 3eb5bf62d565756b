//go:build unix

package admission

import "syscall"

const canPoll = true

// readNow reads what is there. Sockets of Go do not block.
func readNow(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// again says of an error of readNow that there was nothing yet.
func again(err error) bool { return err == syscall.EAGAIN || err == syscall.EINTR } //nolint:errorlint // as the system gave it
