//go:build !unix

package admission

const canPoll = false

func readNow(uintptr, []byte) (int, error) { return 0, nil }

func again(error) bool { return false }
