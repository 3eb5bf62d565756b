package redisconn

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// ProcessName names this process for people where it writes settings to Redis: its program, its number and its host, as in
// "dispatcher 4711 on web-1".
var ProcessName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	return fmt.Sprintf("%s %d on %s", filepath.Base(os.Args[0]), os.Getpid(), host)
})
