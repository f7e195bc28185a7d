package store

import "sync/atomic"

// relatives has the records that were decoded last, one for each group of siblings; see shape. Objects of one template
// differ in few places, so the next one is decoded faster beside the last, and shares memory with it. It holds at most
// relativeGroups replaced records, whose decoded forms are usable as long as they are in memory.
type relatives struct {
	last atomic.Pointer[[relativeGroups]atomic.Pointer[Record]] // nil: nothing was decoded yet
}

const (
	relativeGroups = 1024
	// relativeWays is the number of places in which the record of a group may be. Groups displace each other if more
	// than these have the same places.
	relativeWays = 4
)

// of returns a relative of a record, or nil.
func (s *relatives) of(r *Record) *Record {
	last := s.last.Load()
	if last == nil {
		return nil
	}
	group := r.shape.siblings
	for way := range uint64(relativeWays) {
		if found := last[place(group, way)].Load(); found != nil && found.shape.siblings == group {
			return found
		}
	}
	return nil
}

// add notes that a record was decoded. If two records are added at the same time, one of them may be lost.
func (s *relatives) add(r *Record) {
	last := s.last.Load()
	if last == nil {
		s.last.CompareAndSwap(nil, new([relativeGroups]atomic.Pointer[Record]))
		last = s.last.Load()
	}
	group := r.shape.siblings
	at := &last[place(group, group>>32%relativeWays)] // if no place is free
	for way := range uint64(relativeWays) {
		p := &last[place(group, way)]
		found := p.Load()
		if found == nil {
			at = p
		} else if found.shape.siblings == group {
			at = p
			break
		}
	}
	at.Store(r)
}

func place(group, way uint64) uint64 { return (group*relativeWays + way) % relativeGroups }
