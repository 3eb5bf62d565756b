package config

import "github.com/tundish-io/tundish/admission"

// fastest returns the fastest rate of a bucket, and its key.
func fastest(b Bucket) (rate admission.Rate, key string) {
	if rate = b.FastestRate(); rate != b.Rate {
		return rate, "calendar.rate"
	}
	return rate, "rate"
}
