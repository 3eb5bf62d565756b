// Package schedule says when something is to happen: the fire times of a cron line in a time zone, and which of the times that were
// missed are made up for. All of it is pure: time is an argument, and nothing here asks a clock or Redis.
//
// Drain windows, rate calendars and deadlines belong here too, once there are any.
package schedule
