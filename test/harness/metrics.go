package harness

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Metric returns the sum of a dispatcher's series with a name and all of some labels; 0 if there are none, or no response.
func (s *System) Metric(dispatcher int, name string, labels ...string) (sum float64) {
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, s.OpsOf[dispatcher]+"/metrics", nil)
	if err != nil {
		s.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(series, name+"{") || slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(series, label) }) {
			continue
		}
		n, _ := strconv.ParseFloat(value, 64)
		sum += n
	}
	return sum
}
