// Package schedule says when something is to happen: the fire times of a cron line in a time zone, which of the times that were missed are
// made up for, and at which times a bucket leaks at which rate. All of it is pure: time is an argument, and nothing here asks a clock or
// Redis.
package schedule
