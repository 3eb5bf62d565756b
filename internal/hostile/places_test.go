package hostile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// decoding are the calls that make values of bytes, or that read until the end.
var decoding = regexp.MustCompile(`json\.(Unmarshal|NewDecoder)\(|io\.ReadAll\(|\.(ParseForm|ParseMultipartForm|FormValue|PostFormValue)\(|gzip\.NewReader|flate\.NewReader|zlib\.NewReader|` +
	`csv\.NewReader\(|toml\.(Unmarshal|NewDecoder)\(|bufio\.NewScanner\(|\.ReadString\(|\.ReadBytes\(|jsonscan\.(New|Members|Elements|Valid)\(|clientcredentials\.`)

// places are all files that read bytes of others, and why that costs no more than it should. Bodies of requests are read in internal/httpapi/bodies.go alone,
// which counts each twice against producer.body_memory. A request with a Content-Encoding is refused (body.go), and calls have DisableCompression
// (workers/outgoing/transport.go). What a client of the proxy asks for compressed is decompressed to be judged, 64 KiB of it. Tundish checks no tokens of others: there is no JWKS and no OIDC.
var places = map[string]string{
	// Scanned: no values are made. TestRequestsCostNoTree and its neighbours in workers/llm, and TestResponsesCostNoTree in workers, measure them.
	"workers/llm/members.go":       "scanned",
	"workers/llm/text.go":          "scanned",
	"workers/llm/input.go":         "scanned",
	"workers/llm/body.go":          "scanned",
	"workers/llm/named.go":         "scanned",
	"workers/llm/apierror.go":      "scanned",
	"workers/llm/stream.go":        "scanned, by events of 1 MiB at most",
	"workers/pointer.go":           "scanned",
	"workers/ruleitems.go":         "scanned",
	"workers/items.go":             "scanned",
	"workers/googleretry.go":       "scanned",
	"workers/batchresponse.go":     "scanned; kept are the results of the batch's own jobs",
	"internal/httpapi/pieces.go":   "pieces of the body; TestBodiesOfManyPieces",
	"internal/httpapi/decode.go":   "Unmarshal describes a fault only, after Valid has found one",
	"workers/llm/call.go":          "64 KiB of an error; an answer is kept to 4 MiB as far as Ask.Memory permits",
	"workers/llm/roundtrip.go":     "the request of the program that embeds the library",
	"workers/response.go":          "64 KiB are decompressed to 64 KiB at most",
	"workers/outgoing/response.go": "bounded by what the job wants, 4 MiB at most, by Deliveries at a time",

	// Small: a tree is harmless.
	"internal/httpapi/input.go":       "values of a body of 64 KiB; lists of lines are cut into pieces, for admins",
	"internal/httpapi/part_patch.go":  "values of a body of 64 KiB, for admins",
	"internal/httpapi/recording.go":   "members of a body of 64 KiB, for operators",
	"internal/httpapi/sink.go":        "200 bytes",
	"internal/console/":               "forms of 64 KiB, a login of 4 KiB, headers of 16 KiB; answers of our own API",
	"workers/outgoing/secret_file.go": "a file of the operator, 64 KiB",
	"workers/httpworker/auth.go":      "package oauth2 decodes answers of token_url, 64 KiB at most (token_transport.go); TestTokenAnswersAreBounded",

	// Of the operator, at the command line: it ends, and shares its memory with nobody.
	"internal/cli/":         "the operator's files and answers of our own API",
	"internal/config/":      "the operator's file of 1 MiB",
	"internal/load/":        "the operator's load test",
	"internal/redistest/":   "tests",
	"internal/llmprovider/": "the demo's own provider, bounded",

	// Of ourselves: what Tundish has written into Redis.
	"bucket.go":  "a payload that the program decodes, max_payload",
	"shaper/":    "text that Tundish wrote",
	"admission/": "text that Tundish wrote",
}

// A new place that reads bytes of others has to be in the list.
func TestAllPlacesAreListed(t *testing.T) {
	t.Parallel()
	const root = "../.."
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() {
			if slices.Contains([]string{"test", "examples", "scripts", "clients", ".tools", ".git", "docs"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !decoding.Match(text) {
			return err
		}
		for place := range places {
			if name == place || strings.HasSuffix(place, "/") && strings.HasPrefix(name, place) {
				used[place] = true
				return nil
			}
		}
		t.Errorf("%s reads bytes (%s) and is not in places: scan it with internal/jsonscan, or bound it, and say so there", name, decoding.Find(text))
		return nil
	})
	must.OK(t, err)
	for place := range places {
		if !used[place] {
			t.Errorf("%s is in places, and reads nothing any more", place)
		}
	}
}
