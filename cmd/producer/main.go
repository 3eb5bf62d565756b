// Command producer enqueues the jobs of Tundish: the HTTP API, and the command line for clients. `producer --help` lists its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // for machines and images without root certificates: their own win, and SSL_CERT_FILE

	"github.com/tundish-io/tundish/internal/cli"
)

func main() {
	logging.Disable() // the client's own lines: the caller of a command reports its errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal stops, a second one kills
	os.Exit(cli.RunProducer(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
