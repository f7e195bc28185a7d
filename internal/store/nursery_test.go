package store_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func large(name string, version int) thing {
	x := obj(name, "u-"+name, version)
	x.more = fmt.Sprintf(`,"data":{"v":"%d","text":%q}`, version, strings.Repeat("0123456789abcdef", 512))
	return x
}

// An object that is replaced while it is young is never packed, and does not stay in memory.
func TestHotObjectsAreNotPacked(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9)
	for i := range 4000 { // of 8 KB each
		apply(t, sink, source.Modified, large("a", 10+i))
	}
	if st := s.MemoryStats(); st.Mapped != 0 || st.Unpacked > 9<<20 {
		t.Errorf("%d bytes packed, %d kept", st.Mapped, st.Unpacked)
	}
}

// An object that is not replaced is packed after a while, without any further event.
func TestSurvivorsArePacked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{})
		defer s.Close()
		sink := s.Sink("")
		list(t, sink, 9)
		apply(t, sink, source.Added, large("a", 10))
		if st := s.MemoryStats(); st.Mapped != 0 || st.Unpacked < 8<<10 {
			t.Errorf("packed at once: %+v", st)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if st := s.MemoryStats(); st.Mapped == 0 || st.Unpacked != 0 {
			t.Errorf("not packed after a while: %+v", st)
		}
		if r, ok := s.Get(large("a", 0).key()); !ok || string(r.Raw()) != string(large("a", 10).json()) {
			t.Error("the packed object differs")
		}
	})
}

// The number of young objects is bounded, however fast they arrive.
func TestYoungObjectsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9)
	for i := range 5000 {
		apply(t, sink, source.Added, large(fmt.Sprint("a", i), 10+i))
		if st := s.MemoryStats(); st.Unpacked > 33<<20 {
			t.Fatalf("%d bytes are unpacked", st.Unpacked)
		}
	}
	if n := s.Len(); n != 5000 {
		t.Error(n)
	}
}
