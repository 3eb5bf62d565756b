package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// maxLine bounds a line of input: the largest payload that a bucket may take.
const maxLine = shaper.MaxPayloadLimit + 1

// eachLine calls do with each line that is not blank, until one fails or ctx
// ends. The reader may then still wait for its last line: it ends with the
// process.
func eachLine(ctx context.Context, r io.Reader, do func(text []byte) error) error {
	lines, failed := make(chan []byte), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(inputtext.NewReader(r))
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			text := inputtext.TrimLine(scanner.Bytes())
			if len(text) == 0 {
				continue
			}
			select {
			case lines <- bytes.Clone(text):
			case <-ctx.Done():
				return
			}
		}
		if err := scanner.Err(); err != nil {
			failed <- fmt.Errorf("read stdin: %w", err)
		}
	}()
	for {
		select {
		case text, ok := <-lines:
			if !ok {
				select {
				case err := <-failed:
					return err
				default:
					return ctx.Err()
				}
			}
			if err := do(text); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
