// Package telemetry makes what a program reports through: its logger, its registry of metrics, and what exports its traces. All are values to
// hand on; nothing here is global. No other package imports the SDK of OpenTelemetry.
package telemetry
