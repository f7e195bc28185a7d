package store

import "sync/atomic"

type counters struct {
	applied, suppressed, commits, quarantined atomic.Int64
}
