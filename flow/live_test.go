package flow

import (
	"slices"
	"testing"
)

func TestLiveSet(t *testing.T) {
	t.Parallel()
	l := newLiveSet()
	if l.emptied() != nil {
		t.Error("the live set is not empty")
	}
	fibers := make([]*fiber, 6)
	for i := range fibers[:5] {
		fibers[i] = &fiber{}
		l.add(fibers[i])
	}
	empty := l.emptied()
	c, another := l.cursor(), l.cursor()
	var seen []uint64
	read := func(limit int) { c.read(limit, func(f *fiber) { seen = append(seen, f.id) }) }
	read(2)
	l.remove(fibers[0]) // before the cursor
	l.remove(fibers[2]) // after it
	fibers[5] = &fiber{}
	l.add(fibers[5])
	read(2)
	read(2)
	if !slices.Equal(seen, []uint64{1, 2, 4, 5}) {
		t.Errorf("the cursor read %v", seen)
	}
	var all []uint64
	for f := range l.all() {
		all = append(all, f.id)
	}
	if !slices.Equal(all, []uint64{2, 4, 5, 6}) {
		t.Errorf("%v are alive", all)
	}
	c.close()
	another.close()
	for f := range l.all() {
		select {
		case <-empty:
			t.Fatalf("it is empty with fiber %d alive", f.id)
		default:
		}
		l.remove(f)
		break
	}
	for _, f := range []*fiber{fibers[3], fibers[4], fibers[5]} {
		l.remove(f)
	}
	select {
	case <-empty:
	default:
		t.Error("the end of the last fiber is not reported")
	}
	if l.n != 0 || l.ring.next != l.ring {
		t.Errorf("%d are left", l.n)
	}
}
