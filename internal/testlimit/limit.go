// Package testlimit holds the time after which a test gives up.
package testlimit

import "time"

// Wait is how long a test waits for something that it expects, before it fails. The machine may run other tests with
// the race detector at the same time, and may leave a process without a processor for many seconds. A test that passes
// does not wait for that long, so the time is generous. It is less than the limit of go test, which prints no reason.
//
// It is no bound that a test may assert.
const Wait = 5 * time.Minute
