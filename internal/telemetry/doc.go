// Package telemetry makes a program's logger, its registry of metrics, and the exporter of its traces. All are values to pass on; nothing here is
// global. No other package imports the SDK of OpenTelemetry.
package telemetry
