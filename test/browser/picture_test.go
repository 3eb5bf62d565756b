package browser

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "write the pictures of the README and of docs/console.md into this `folder`")

// startDemo runs `dispatcher demo --stay` until the test ends, and returns the address that it prints.
func startDemo(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "dispatcher"), "demo", "--stay")
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		for lines.Scan() { // to its end
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the demo was interrupted: %v", err)
		}
	})
	for lines.Scan() {
		if address := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); address != "" {
			return address
		}
	}
	t.Fatal("the demo prints no address")
	return ""
}

// The pictures of the README show the demo after a minute. Those of docs/console.md show pages of a site with jobs. They are made by hand, with
// scripts/browser -run TestPictures -pictures ../../docs.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("it writes into docs: -pictures ../../docs")
	}
	p := newTab(t)
	address := startDemo(t)
	p.as(look{script: true, width: 1000})
	p.open(address)
	p.alive()
	departed := regexp.MustCompile(`, (\d+) departed`)
	await(t, "the picture has a whole minute", func() bool {
		found := departed.FindStringSubmatch(p.caption())
		if found == nil {
			return false
		}
		n, err := strconv.Atoi(found[1])
		return err == nil && n >= 2950
	})
	for name, dark := range map[string]bool{"console-light": false, "console-dark": true} {
		p.as(look{script: true, width: 1000, dark: dark})
		p.open(address) // the verdict and the numbers are of the time of loading
		p.alive()
		p.picture(name, ".numbers") // what is below is not part of the picture
	}
	site := withJobs(t)
	site.enqueue("even", 900, map[string]any{"payload": "x"})
	await(t, "a bucket has sent for half a minute", func() bool { return site.got("even") > 600 })
	p.as(look{script: true, width: 1000})
	p.login(site)
	for name, path := range map[string]string{"buckets": "", "dead": "buckets/refused/dead", "job": "jobs?id=a-job"} {
		p.open(site.console + path)
		p.picture("console-"+name, "main")
	}
}

// picture writes the top of the page into the folder of pictures, down to the end of an element, and 700 pixels of it at most.
func (p *tab) picture(name, last string) {
	p.t.Helper()
	height := eval[float64](p, "document.querySelector('"+last+"').getBoundingClientRect().bottom")
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(1000, min(int64(height)+16, 700))); err != nil {
		p.t.Fatal(err)
	}
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		picture, err = withPalette(picture)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("%s: %d bytes", name, len(picture))
}

// withPalette is a picture with its 256 most frequent colours, which is a third of the size.
func withPalette(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("read a screenshot: %w", err)
	}
	counts := map[color.Color]int{}
	bounds := full.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	const most = 256
	small := image.NewPaletted(bounds, colours[:min(len(colours), most)])
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.Set(x, y, full.At(x, y))
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, small)
	return out.Bytes(), err
}
