// Command dispatcher dispatches the jobs of Tundish, evenly, and is the tool of its operators. `dispatcher --help` lists its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // for machines and images without root certificates: their own win, and SSL_CERT_FILE

	"github.com/tundish-io/tundish/internal/cli"
)

func main() {
	logging.Disable() // the client's own lines: the caller of a command reports its errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal stops, a second one kills
	run := cli.RunDispatcher
	if filepath.Base(os.Args[0]) == "producer" { // images have this program under both names, which halves the download
		run = cli.RunProducer
	}
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
