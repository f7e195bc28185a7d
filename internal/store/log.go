package store

import (
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/source"
)

// The change log: a linked list of chunks that only grows at its end. One writer at a time appends (under Store.mu);
// cursors read without a lock. A cursor holds the chunk that it reads, so chunks that all cursors have left are
// garbage; nobody counts. What bounds the list is that a cursor that is too far behind is folded: see Cursor.fold.

// chunkLen is how many single changes one chunk holds. A commit makes a chunk of its own size.
const chunkLen = 64

// maxLag is by how many entries of the log a cursor may be behind before they are folded into one pending change per
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

// note is what entries that are not about an object say.
type note struct {
	version    string
	reason     string
	quarantine *source.Quarantined
}

// changesOf is what cursors are told; a changed uid is a deletion and an addition.
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

// append publishes entries; a large batch becomes a chunk of its own, which the log takes over.
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

// seal ends the tail early and goes on with next.
func (l *changeLog) seal(next, tail *chunk) {
	l.tail.next.Store(next)
	l.tail = tail
}

// position is the reader's end: the next entry to read.
type position struct {
	chunk *chunk
	at    int
	seq   uint64
}

// end is the position after the last entry.
func (l *changeLog) end() position {
	return position{chunk: l.tail, at: int(l.tail.n.Load()), seq: l.seq}
}

// next returns the entry at p and moves on; nil if there is none yet.
func (p *position) next() *change {
	for {
		n := int(p.chunk.n.Load())
		if p.at < n {
			p.at++
			p.seq++
			c := &p.chunk.entries[p.at-1]
			p.leave()
			return c
		}
		if !p.leave() {
			return nil
		}
	}
}

// leave goes on to the next chunk when this one is finished, so that it can be collected.
func (p *position) leave() bool {
	next := p.chunk.next.Load()
	if next == nil || p.at < int(p.chunk.n.Load()) {
		return false
	}
	p.chunk, p.at = next, 0
	return true
}
