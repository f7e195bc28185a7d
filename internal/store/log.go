package store

import (
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/source"
)

// The change log is a linked list of chunks that grows only at its end. One writer at a time appends, under the writer
// lock; cursors read without a lock. A cursor references the chunk that it reads, so chunks that all cursors have left
// are collected. The list is bounded, because a cursor that is too far behind is folded; see Cursor.fold.

// chunkLen is the number of changes in a chunk. A larger batch makes a chunk of its own size.
const chunkLen = 64

// maxLag is the number of log entries that a cursor may be behind before they are folded into one pending change per
// key.
const maxLag = 1024

// change is one entry of the log. It is shared by all cursors and never modified.
type change struct {
	typ      EventType
	initial  bool
	inferred bool
	relist   bool // part of a commit: may span several changes, and is never an echo
	obj      *Record
	prior    *Record
	note     *note
}

// note is the content of a log entry that is not about an object.
type note struct {
	version    string
	reason     string
	quarantine *source.Quarantined
}

// changesOf appends the changes from prior to rec to batch. A changed uid is a deletion and an addition.
func changesOf(prior, rec *Record, batch []change) []change {
	switch {
	case prior == nil:
		return append(batch, change{typ: Added, obj: rec})
	case prior.SameUID(rec):
		return append(batch, change{typ: Modified, obj: rec, prior: prior})
	}
	return append(batch, change{typ: Deleted, inferred: true, obj: prior, prior: prior}, change{typ: Added, obj: rec})
}

type chunk struct {
	entries []change // of fixed length; entries[:n] are published
	n       atomic.Int64
	next    atomic.Pointer[chunk]
}

// changeLog is the writer's end.
type changeLog struct {
	tail *chunk // always has room
	seq  uint64 // entries ever appended
}

func newLog() changeLog { return changeLog{tail: &chunk{entries: make([]change, chunkLen)}} }

// append publishes entries. A large batch becomes a chunk of its own, and the log then owns its slice.
func (l *changeLog) append(batch []change) {
	l.seq += uint64(len(batch))
	if len(batch) > chunkLen {
		big := &chunk{entries: batch}
		big.n.Store(int64(len(batch)))
		rest := &chunk{entries: make([]change, chunkLen)}
		big.next.Store(rest)
		l.seal(big, rest)
		return
	}
	for _, c := range batch {
		n := l.tail.n.Load()
		l.tail.entries[n] = c
		if int(n)+1 == len(l.tail.entries) {
			fresh := &chunk{entries: make([]change, chunkLen)}
			last := l.tail
			last.n.Store(n + 1)
			last.next.Store(fresh) // after n: with a next chunk, n is final
			l.tail = fresh
			continue
		}
		l.tail.n.Store(n + 1)
	}
}

// seal ends the tail early and continues with next; tail is the new tail.
func (l *changeLog) seal(next, tail *chunk) {
	l.tail.next.Store(next)
	l.tail = tail
}

// position is the reader's end: the next entry to read.
type position struct {
	chunk *chunk // nil: the reader has left the log
	at    int
	seq   uint64
}

// end returns the position after the last entry.
func (l *changeLog) end() position {
	return position{chunk: l.tail, at: int(l.tail.n.Load()), seq: l.seq}
}

// next returns the entry at p and moves on; nil if there is none yet, or the reader has left the log.
func (p *position) next() *change {
	for p.chunk != nil {
		n := int(p.chunk.n.Load())
		if p.at < n {
			p.at++
			p.seq++
			c := &p.chunk.entries[p.at-1]
			p.leave()
			return c
		}
		if !p.leave() {
			break
		}
	}
	return nil
}

// leave moves to the next chunk when this one is finished, so that this one can be collected. It reports whether it
// moved.
func (p *position) leave() bool {
	next := p.chunk.next.Load()
	if next == nil || p.at < int(p.chunk.n.Load()) {
		return false
	}
	p.chunk, p.at = next, 0
	return true
}
