package store_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// manyPods returns a store of pods whose decoded objects take several times the limit of the hot set, and their keys.
func manyPods(t *testing.T) (s *store.Store, keys []store.Key, limit int64) {
	t.Helper()
	limit = 4 << 20
	s, want := pods(t, source.JSON, 600, store.Options{HotBytes: limit})
	for _, p := range want {
		keys = append(keys, store.Key{Namespace: p.Namespace, Name: p.Name})
	}
	return s, keys, limit
}

// readAll reads objects and checks the bound of the hot set.
func readAll(t *testing.T, s *store.Store, limit int64, keys []store.Key) {
	t.Helper()
	v := store.Of[corev1.Pod](s)
	for _, k := range keys {
		if _, err := v.Get(k); err != nil {
			t.Fatal(err)
		}
		if n, bytes := store.Hot(s); bytes > limit {
			t.Fatalf("the hot set has %d objects of %d bytes, the bound is %d", n, bytes, limit)
		}
	}
}

// hot returns how many of the objects are in the hot set.
func hot(s *store.Store, keys []store.Key) (n int) {
	for _, k := range keys {
		if store.IsHot(s, k) {
			n++
		}
	}
	return n
}

// A list that is read again and again is in the hot set after a few reads, although the set is full of objects that
// were read before.
func TestRepeatedListBecomesHot(t *testing.T) {
	t.Parallel()
	s, keys, limit := manyPods(t)
	readAll(t, s, limit, keys)
	size, _ := store.Hot(s)
	repeated := keys[len(keys)-size/2:]
	for range 10 {
		readAll(t, s, limit, repeated)
	}
	if n := hot(s, repeated); n < len(repeated)*9/10 {
		t.Errorf("%d of the %d objects of a list that was read 10 times are hot; the set has room for %d", n, len(repeated),
			size)
	}
}

// A list takes the place of one that was read often, but is not read any more.
func TestRepeatedListReplacesFormerOne(t *testing.T) {
	t.Parallel()
	s, keys, limit := manyPods(t)
	readAll(t, s, limit, keys)
	size, _ := store.Hot(s)
	former, now := keys[:size*3/4], keys[len(keys)-size*3/4:]
	for range 50 {
		readAll(t, s, limit, former)
	}
	for range 50 {
		readAll(t, s, limit, now)
	}
	if n := hot(s, now); n < len(now)*9/10 {
		t.Errorf("%d of the %d objects of a list that was read 50 times are hot; the set has room for %d", n, len(now), size)
	}
}

// One read of all objects does not displace those that are read again and again.
func TestReadOfAllKeepsHotObjects(t *testing.T) {
	t.Parallel()
	s, keys, limit := manyPods(t)
	readAll(t, s, limit, keys)
	size, _ := store.Hot(s)
	repeated := slices.Clone(keys[len(keys)-size/2:])
	for range 10 {
		readAll(t, s, limit, repeated)
	}
	before := hot(s, repeated)
	readAll(t, s, limit, keys[:len(keys)-len(repeated)])
	if n := hot(s, repeated); n < before*9/10 {
		t.Errorf("%d of %d hot objects are left after a read of all", n, before)
	}
}

// Reads of more objects than the hot set holds, in turns, find a part of them in the set.
func TestListLargerThanHotSetStaysHotInPart(t *testing.T) {
	t.Parallel()
	s, keys, limit := manyPods(t)
	readAll(t, s, limit, keys)
	size, _ := store.Hot(s)
	large := keys[:min(len(keys), size*2)]
	found := 0
	const rounds = 20
	for range rounds {
		for _, k := range large {
			if store.IsHot(s, k) {
				found++
			}
			readAll(t, s, limit, []store.Key{k})
		}
	}
	if found < rounds*size/2 {
		t.Errorf("%d reads of %d found a hot object; the set has room for %d of %d", found, rounds*len(large), size,
			len(large))
	}
}

// A reader of many objects that have to be decoded lets other goroutines run in between. The test changes GOMAXPROCS,
// so it is not parallel.
func TestReadOfAllYields(t *testing.T) {
	s, keys, limit := manyPods(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	stop, turns := make(chan struct{}), 0
	var other sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				turns++
				runtime.Gosched()
			}
		}
	})
	readAll(t, s, limit, keys)
	close(stop)
	other.Wait()
	if turns < 20 {
		t.Errorf("another goroutine had %d turns while %d objects were decoded", turns, len(keys))
	}
}
