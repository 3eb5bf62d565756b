// Package schedule computes the fire times of a cron line in a time zone, and which missed fires are made up for. It also computes when a bucket
// sends at which rate. All of it is pure: time is an argument, and nothing here reads a clock or Redis.
package schedule
