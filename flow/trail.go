package flow

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// trailSize is the size of the trail of a fiber in bytes. An entry takes 4 bytes, or more in flows of over 128 steps.
const trailSize = 48

// trail is the recent history of a fiber, packed. An entry has the step (a varint), the outcome, the time (see
// packTime) and a count of repeats. When the trail is full, the oldest entries are dropped.
type trail struct {
	used    uint8
	last    uint8 // index of the last entry
	dropped uint16
	data    [trailSize]byte
}

// add records an outcome. If the step and the outcome equal those of the last entry, add increments its count instead
// and keeps the longest time.
func (t *trail) add(pc int32, outcome op, took int64) {
	var entry [8]byte
	n := 0
	for v := uint32(pc); ; v >>= 7 {
		if v < 0x80 {
			entry[n] = byte(v)
			n++
			break
		}
		entry[n] = byte(v) | 0x80
		n++
	}
	entry[n], entry[n+1], entry[n+2] = byte(outcome), packTime(took), 1
	n += 3
	if t.used > 0 {
		last := t.data[t.last:t.used]
		if len(last) == n && string(last[:n-2]) == string(entry[:n-2]) {
			last[n-2] = max(last[n-2], entry[n-2])
			if last[n-1] < 255 {
				last[n-1]++
			}
			return
		}
	}
	for int(t.used)+n > trailSize {
		first := entryLen(t.data[:t.used])
		copy(t.data[:], t.data[first:t.used])
		t.used -= uint8(first)
		if t.dropped < 1<<16-1 {
			t.dropped++
		}
	}
	t.last = t.used
	copy(t.data[t.used:], entry[:n])
	t.used += uint8(n)
}

func entryLen(b []byte) int {
	n := 0
	for b[n]&0x80 != 0 {
		n++
	}
	return n + 4
}

// packTime encodes a duration in a byte, to within an eighth: 5 bits of exponent over 256 ns, 3 bits of mantissa. The
// maximum is about 75 minutes.
func packTime(d int64) byte {
	v := uint64(max(d, 0)) >> 8
	if v < 8 {
		return byte(v)
	}
	shift := bits.Len64(v) - 4
	if shift > 30 {
		return 255
	}
	return byte((shift+1)<<3) | byte(v>>shift)&7
}

func unpackTime(b byte) time.Duration {
	if b < 8 {
		return time.Duration(b) << 8
	}
	shift := b>>3 - 1
	return time.Duration(uint64(8|b&7)<<shift) << 8
}

// TrailEntry is one run of a step, or several equal ones in a row.
type TrailEntry struct {
	Step    string        `json:"step"`           // path within the flow
	Outcome string        `json:"outcome"`        // result of the step in lower case, or panic, cancel, skip
	Took    time.Duration `json:"took"`           // running time, to within an eighth; the longest of the repeats
	Repeats int           `json:"times,omitzero"` // number of runs in a row; 255 means 255 or more
}

func (t TrailEntry) String() string {
	s := t.Step + ":" + t.Outcome
	if t.Repeats > 1 {
		s += fmt.Sprintf("×%d", t.Repeats)
	}
	return s
}

// Trail is the recent history of a fiber, oldest first.
type Trail []TrailEntry

func (t Trail) String() string {
	texts := make([]string, len(t))
	for i, e := range t {
		texts[i] = e.String()
	}
	return strings.Join(texts, " ")
}

// entries unpacks the trail. path returns the path of a step.
func (t *trail) entries(path func(pc int32) string) Trail {
	var out Trail
	for b := t.data[:t.used]; len(b) > 0; {
		pc, n := uint32(0), 0
		for ; ; n++ {
			pc |= uint32(b[n]&0x7f) << (7 * n)
			if b[n]&0x80 == 0 {
				break
			}
		}
		out = append(out, TrailEntry{
			Step: path(int32(pc)), Outcome: op(b[n+1]).String(), Took: unpackTime(b[n+2]),
			Repeats: int(b[n+3]),
		})
		b = b[n+4:]
	}
	return out
}
