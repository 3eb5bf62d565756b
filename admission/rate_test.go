package admission

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{
		"50/s":             {50, time.Second, UnitRequests},
		"1/h":              {1, time.Hour, UnitRequests},
		"100/15m":          {100, 15 * time.Minute, UnitRequests},
		"2000/d":           {2000, 24 * time.Hour, UnitRequests},
		"90000 tokens/m":   {90000, time.Minute, "tokens"},
		" 5  requests / s": {5, time.Second, UnitRequests},
		"7/1h30m":          {7, 90 * time.Minute, UnitRequests},
		"1/1ms":            {1, time.Millisecond, UnitRequests},
		"1/744h":           {1, MaxPeriod, UnitRequests},
		"1000000/s":        {1_000_000, time.Second, UnitRequests},
	} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "want a number and a period",
		"50":                      "want a number and a period",
		"/s":                      "whole number",
		"x/s":                     "whole number",
		"1.5/s":                   `is not a whole number: the same rate is "3/2s"`,
		"1.9/s":                   `the same rate is "19/10s"`,
		"0.25 tokens/h":           `the same rate is "1 tokens/4h"`,
		".5/m":                    `the same rate is "1/2m"`,
		"2.50/90s":                `the same rate is "5/3m"`,
		"7.0/s":                   `the same rate is "7/s"`,
		"0.0/s":                   `"0.0" is not a whole number`,
		"0.000001/d":              `"0.000001" is not a whole number`,
		"0.0000000000000000001/s": "whole number",
		"-1.5/s":                  "whole number",
		"1./s":                    `the same rate is "1/s"`,
		"1.5/x":                   "whole number",
		"99999999999999999999/s":  "whole number",
		"50/":                     "period",
		"50/x":                    "period",
		"50/5":                    "period",
		"0/s":                     "want 1 or more",
		"-5/s":                    "want 1 or more",
		"5/0s":                    "whole milliseconds",
		"5/-1s":                   "whole milliseconds",
		"5/1us":                   "whole milliseconds",
		"5/1500us":                "whole milliseconds",
		"5/745h":                  "31 days",
		"1000001/s":               "more than 1000000 a second",
		"2147483648/d":            "more than",
		"9223372036854775807/24h": "more than",
		"5 Tokens/s":              "unit",
		"5 tokens more/s":         "unit",
		"5 t2/s":                  "unit",
	} {
		if got, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want an error about %q", text, got, err, want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"50/s", "90000 tokens/m", "100/15m", "1/1h1ms", "+5/s", "1.9/s", "5//s", "5 /s", "\xff/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			if _, proposed, ok := strings.Cut(err.Error(), "the same rate is "); ok {
				proposed, _ = strconv.Unquote(proposed)
				if _, err := ParseRate(proposed); err != nil {
					t.Errorf("%q: the error proposes %q: %v", text, proposed, err)
				}
			}
			return
		}
		if rate.Validate() != nil || rate.Interval() <= 0 || rate.PerSecond() <= 0 {
			t.Errorf("%q: %+v", text, rate)
		}
		if again, err := ParseRate(rate.String()); err != nil || again != rate {
			t.Errorf("%q is written %q and read as %+v, %v", text, rate, again, err)
		}
	})
}

func TestRateInNumbers(t *testing.T) {
	t.Parallel()
	r := Rate{Count: 7, Per: time.Minute}
	if r.Interval() != 8571428571 || r.PerSecond() < 0.1166 || r.PerSecond() > 0.1167 || r.IsZero() {
		t.Errorf("%s, %f", r.Interval(), r.PerSecond())
	}
	if zero := (Rate{}); !zero.IsZero() || zero.Interval() != 0 || zero.PerSecond() != 0 || zero.Validate() == nil {
		t.Error("the zero rate is one")
	}
}
