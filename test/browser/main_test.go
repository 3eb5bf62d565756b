package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tundish-io/tundish/internal/redistest"
)

// programs is the folder with the built programs.
var programs string

// browser is the context of the one browser, in which each test has tabs of its own. nil: there is none here.
var browser context.Context

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tundish-browser-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	programs = dir
	build := exec.Command("go", "build", "-o", dir, "./cmd/producer", "./cmd/dispatcher")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	if path, err := exec.LookPath("chromium"); err == nil {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
		defer end()
		ctx, closeBrowser := chromedp.NewContext(allocator)
		defer closeBrowser()
		if err := chromedp.Do(ctx); err != nil { // without a timeout, which would end the browser
			return 0, fmt.Errorf("start chromium: %w", err)
		}
		browser = ctx
	}
	return redistest.Main(m).Run(), nil
}
