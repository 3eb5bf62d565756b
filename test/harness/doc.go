// Package harness starts the whole system for a test, and watches it from outside: the real programs as processes of their own around a real Redis, a
// receiver that logs every arrival, a monitor of the slots that Redis gives, and proxies, clocks and servers of asynq that a test stops, delays or sets.
//
// Two folders have the tests: test verifies each promise once, on any machine; test/soak measures, for hours, with figures.
package harness
