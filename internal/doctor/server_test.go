package doctor

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestVersionOfAServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		info map[string]string
		want string
	}{
		"new":       {map[string]string{"redis_version": "7.0.15", "arch_bits": "64"}, StatusOK},
		"valkey":    {map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1", "arch_bits": "64"}, StatusOK},
		"old":       {map[string]string{"redis_version": "6.2.14", "arch_bits": "64"}, StatusFail},
		"32 bits":   {map[string]string{"redis_version": "7.0.15", "arch_bits": "32"}, StatusFail},
		"untold":    {map[string]string{}, StatusWarn},
		"bits only": {map[string]string{"arch_bits": "64"}, StatusWarn},
	} {
		s := &server{info: test.info}
		if got := s.version(); got.Status != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{0: "0 B", 1000: "1000 B", 1536: "1.5 KiB", 1023 << 10: "1023 KiB", 100 << 20: "100 MiB", 3 << 40: "3 TiB"} {
		must.Equal(t, size(n), want, "size(%g)", n)
	}
}
