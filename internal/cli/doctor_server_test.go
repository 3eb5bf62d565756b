package cli

import "testing"

func TestVersionOfAServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		info map[string]string
		want string
	}{
		"new":       {map[string]string{"redis_version": "7.0.15", "arch_bits": "64"}, statusOK},
		"valkey":    {map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1", "arch_bits": "64"}, statusOK},
		"old":       {map[string]string{"redis_version": "6.2.14", "arch_bits": "64"}, statusFail},
		"32 bits":   {map[string]string{"redis_version": "7.0.15", "arch_bits": "32"}, statusFail},
		"untold":    {map[string]string{}, statusWarn},
		"bits only": {map[string]string{"arch_bits": "64"}, statusWarn},
	} {
		s := &server{info: test.info}
		if got := s.version(); got.Status != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
}
