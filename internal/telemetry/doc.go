// Package telemetry makes what a program reports through: its logger and its
// registry of metrics. Both are values to hand on; nothing here is global.
package telemetry
