package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestKeyListedTwice lists one key several times, in every order. The newest version wins, whatever its uid, unless the
// known one is newer still.
func TestKeyListedTwice(t *testing.T) {
	t.Parallel()
	twins := []thing{obj("a", "u1", 5), obj("a", "u1", 7), obj("a", "u2", 9), obj("a", "u3", 11)}
	for known := range len(twins) + 1 { // the last value: no known object
		for first := range twins {
			for second := range twins {
				for third := range twins {
					for _, epoch := range []bool{false, true} {
						puts := []thing{twins[first], twins[second], twins[third]}
						t.Run(fmt.Sprintf("known %d, listed %d %d %d, epoch %v", known, first, second, third, epoch), func(t *testing.T) {
							s := newStore(t, store.Options{})
							want := max(first, second, third)
							if known < len(twins) {
								list(t, s.Sink(""), 20, twins[known])
								if !epoch {
									want = max(want, known)
								}
							}
							r := s.Sink("").Replace()
							for _, x := range puts {
								if err := r.Put(x.object()); err != nil {
									t.Fatal(err)
								}
							}
							r.Commit(source.Commit{Version: "30", Epoch: epoch})
							got, there := s.Get(twins[0].key())
							if !there || got.Version() != fmt.Sprint(twins[want].version) || string(got.UID()) != twins[want].uid {
								t.Errorf("%v, want %+v", got, twins[want])
							}
							if s.Len() != 1 {
								t.Errorf("%d objects", s.Len())
							}
						})
					}
				}
			}
		}
	}
}

// TestReplayedInitialEvents: the initial events of a watch include deletions and older states.
func TestReplayedInitialEvents(t *testing.T) {
	t.Parallel()
	type step struct {
		remove bool
		thing
	}
	put := func(version int) step { return step{false, obj("a", "u1", version)} }
	remove := func(version int) step { return step{true, obj("a", "u1", version)} }
	tests := []struct {
		reason string
		known  int // 0: unknown
		steps  []step
		want   string // "": deleted
	}{
		{"a deletion", 0, []step{put(5), remove(6)}, ""},
		{"a deletion with the version that the object had", 0, []step{put(5), remove(5)}, ""},
		{"the replay of an earlier deletion", 0, []step{put(5), remove(4)}, "5"},
		{"the replay of an earlier deletion of a known object", 5, []step{put(5), remove(4)}, "5"},
		{"the replay of a state before the deletion", 0, []step{put(5), remove(6), put(5)}, ""},
		{"the replay of a state before the deletion of a known object", 5, []step{put(5), remove(6), put(5)}, ""},
		{"a deletion comes first", 0, []step{remove(6), put(5)}, ""},
		{"a re-creation after the deletion", 0, []step{put(5), remove(6), put(7)}, "7"},
		{"the known object unchanged", 5, []step{put(5)}, "5"},
		{"the known object in two versions", 5, []step{put(7), put(5)}, "7"},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, store.Options{})
			if tc.known > 0 {
				list(t, s.Sink(""), 5, obj("a", "u1", tc.known))
			}
			r := s.Sink("").Replace()
			for _, st := range tc.steps {
				if st.remove {
					r.Remove(st.object())
				} else if err := r.Put(st.object()); err != nil {
					t.Fatal(err)
				}
			}
			wantMissing := 0
			if tc.known > 0 && tc.want == "" {
				wantMissing = 1
			}
			if missing, _ := r.Missing(); missing != wantMissing {
				t.Errorf("%d missing, want %d", missing, wantMissing)
			}
			r.Commit(source.Commit{Version: "9"})
			version := ""
			if got, there := s.Get(store.Key{Namespace: "ns", Name: "a"}); there {
				version = got.Version()
			}
			if version != tc.want {
				t.Errorf("version %q, want %q", version, tc.want)
			}
		})
	}
}

// TestQuarantinedTwin lists an unreadable version of an object beside an older readable one.
func TestQuarantinedTwin(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		s := newStore(t, store.Options{})
		r := s.Sink("").Replace()
		quarantine := func() {
			s.Sink("").Quarantine(source.Quarantined{
				Namespace: "ns", Name: "a", Version: "7", Err: errors.New("cannot be read"),
			})
		}
		if first {
			quarantine()
		}
		if err := r.Put(obj("a", "u1", 5).object()); err != nil {
			t.Fatal(err)
		}
		if !first {
			quarantine()
		}
		r.Commit(source.Commit{Version: "9"})
		if got, there := s.Get(store.Key{Namespace: "ns", Name: "a"}); !there || got.Version() != "5" ||
			len(s.Quarantined()) != 1 {
			t.Errorf("%v, quarantined %v; want the older state, and the newer one quarantined", got, s.Quarantined())
		}
		list(t, s.Sink(""), 12, obj("a", "u1", 7))
		if len(s.Quarantined()) != 0 {
			t.Errorf("still quarantined: %v", s.Quarantined())
		}
	}
}
