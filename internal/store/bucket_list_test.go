package store_test

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// half sorts objects into two buckets by the parity of their version.
func half(r *store.Record) ([]string, error) {
	last := r.Version()[len(r.Version())-1]
	return []string{fmt.Sprint((last - '0') % 2)}, nil
}

// all puts all objects into one bucket.
func all(*store.Record) ([]string, error) { return []string{"all"}, nil }

// versionsOf returns the sorted names and versions of records.
func versionsOf(records iter.Seq[*store.Record]) (out []string) {
	for r := range records {
		out = append(out, r.Name()+"@"+r.Version())
	}
	slices.Sort(out)
	return out
}

// checkBucket compares a bucket with all objects of its snapshot.
func checkBucket(t *testing.T, now store.Snapshot) {
	t.Helper()
	if want, got := versionsOf(now.All()), versionsOf(now.Index("all", "all")); !slices.Equal(want, got) {
		t.Errorf("the index has %v\nwant %v", got, want)
	}
	both := append(versionsOf(now.Index("half", "0")), versionsOf(now.Index("half", "1"))...)
	slices.Sort(both)
	if want := versionsOf(now.All()); !slices.Equal(want, both) {
		t.Errorf("both halves have %v\nwant %v", both, want)
	}
}

func withBuckets(t *testing.T, objects int) (*store.Store, source.Sink) {
	t.Helper()
	s, sink := holding(t, objects)
	for name, fn := range map[string]store.IndexFunc{"all": all, "half": half} {
		if err := s.AddIndex(name, fn); err != nil {
			t.Fatal(err)
		}
	}
	return s, sink
}

// From the second read on, a bucket has a list. Each kind of change replaces it, and older snapshots keep their
// version.
func TestListOfBucket(t *testing.T) {
	t.Parallel()
	const objects = 200
	version := objects
	for _, tc := range []struct {
		reason string
		change func(t *testing.T, s *store.Store, sink source.Sink)
	}{
		{"an object is changed within its bucket", func(t *testing.T, _ *store.Store, sink source.Sink) {
			apply(t, sink, source.Modified, numbered(3, version))
		}},
		{"an object is deleted", func(t *testing.T, _ *store.Store, sink source.Sink) {
			apply(t, sink, source.Deleted, numbered(3, version))
		}},
		{"an object is added", func(t *testing.T, _ *store.Store, sink source.Sink) {
			apply(t, sink, source.Added, numbered(objects, version))
		}},
		{"an own write is laid over", func(t *testing.T, s *store.Store, _ source.Sink) {
			if _, err := s.Put(source.JSON, numbered(3, version).json()); err != nil {
				t.Fatal(err)
			}
		}},
		{"an own write is laid over and settled", func(t *testing.T, s *store.Store, sink source.Sink) {
			if _, err := s.Put(source.JSON, numbered(3, version).json()); err != nil {
				t.Fatal(err)
			}
			checkBucket(t, s.Snapshot())
			checkBucket(t, s.Snapshot())
			apply(t, sink, source.Modified, numbered(3, version))
		}},
		{"an own deletion is laid over", func(_ *testing.T, s *store.Store, _ source.Sink) {
			s.PutDeleted(numbered(3, 4).key(), "")
		}},
		{"a list replaces objects", func(t *testing.T, _ *store.Store, sink source.Sink) {
			var things []thing
			for i := range objects {
				things = append(things, numbered(i, i+1+i%3*objects))
			}
			list(t, sink, version, things...)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			version += 1000
			s, sink := withBuckets(t, objects)
			checkBucket(t, s.Snapshot())
			checkBucket(t, s.Snapshot())
			if got := store.ListedRecords(s); got != 2*objects {
				t.Fatalf("the lists have %d records after two reads, want %d", got, 2*objects)
			}
			before := s.Snapshot()
			had := versionsOf(before.Index("all", "all"))
			tc.change(t, s, sink)
			for range 3 {
				checkBucket(t, s.Snapshot())
				checkBucket(t, before)
			}
			if got := versionsOf(before.Index("all", "all")); !slices.Equal(got, had) {
				t.Errorf("the older snapshot has %v\nwant %v", got, had)
			}
			if want, got := 2*s.Len(), store.ListedRecords(s); got < want {
				t.Errorf("the lists have %d records after the change, want at least %d", got, want)
			}
		})
	}
}

// A bucket that changes twice without a read in between drops its list.
func TestListOfBucketCools(t *testing.T) {
	t.Parallel()
	s, sink := withBuckets(t, 100)
	checkBucket(t, s.Snapshot())
	checkBucket(t, s.Snapshot())
	apply(t, sink, source.Modified, numbered(3, 1001))
	apply(t, sink, source.Modified, numbered(3, 1003))
	if got := store.ListedRecords(s); got >= 100 {
		t.Errorf("the lists have %d records", got)
	}
	versionsOf(s.Snapshot().Index("all", "all"))
	if got := store.ListedRecords(s); got >= 100 {
		t.Errorf("the first read after two changes fills a list: %d records", got)
	}
	checkBucket(t, s.Snapshot())
}

// The lists of a store have at most maxListed records together.
func TestListsOfBucketsAreBounded(t *testing.T) {
	t.Parallel()
	const objects, indexes = 1000, store.MaxListed/1000 + 10
	s, _ := holding(t, objects)
	for i := range indexes {
		if err := s.AddIndex(fmt.Sprint(i), all); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for i := range indexes {
			n := 0
			for range s.Snapshot().Index(fmt.Sprint(i), "all") {
				n++
			}
			if n != objects {
				t.Fatalf("index %d has %d objects", i, n)
			}
		}
	}
	if got := store.ListedRecords(s); got > store.MaxListed || got < store.MaxListed-objects {
		t.Errorf("the lists have %d records, want up to %d", got, store.MaxListed)
	}
}

// Readers of one snapshot find the same objects through an index and without it, while everything changes.
func TestListOfBucketAmongWrites(t *testing.T) {
	t.Parallel()
	const objects, changes = 64, 2000
	s, sink := withBuckets(t, objects)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				now := s.Snapshot()
				checkBucket(t, now)
				checkBucket(t, now)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range changes {
		x := numbered(i*7%objects, 1000+i)
		if i%3 == 0 {
			if _, err := s.Put(source.JSON, x.json()); err != nil {
				t.Error(err)
			}
		}
		if i%5 != 0 {
			apply(t, sink, source.Modified, x)
		}
	}
	close(done)
	readers.Wait()
	checkBucket(t, s.Snapshot())
}
