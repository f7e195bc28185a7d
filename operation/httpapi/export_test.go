package httpapi

import "time"

// SetClock replaces the clock by which answers are kept.
func (k *Kubernetes) SetClock(now func() time.Time) { k.now = now }
