package store_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

var savedMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// kept is one run of a program with a saved cache.
type kept struct {
	*store.Handle
	rec  *watchtest.Recorder
	done chan error // receives the error of Run
	stop func()
}

func startKept(t *testing.T, s *apiserver.Server, dir string, opts ...source.Option) *kept {
	t.Helper()
	cache, err := store.NewCache(store.CacheOptions{Config: s.Config(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	h, err := cache.Open(store.Request{Resource: savedMaps, Namespaced: true, Options: opts})
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{Handle: h, rec: watchtest.Record(h.Store, watchtest.RecorderOptions{}), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { k.done <- cache.Run(ctx) }()
	k.stop = func() {
		k.rec.Close()
		<-k.rec.Done()
		cancel()
		if err := <-k.done; err != nil {
			t.Error(err)
		}
	}
	return k
}

func (k *kept) cached() map[string]watchtest.State {
	got := map[string]watchtest.State{}
	for r := range k.Snapshot().All() {
		got[r.Key().String()] = watchtest.StateOf(r)
	}
	return got
}

func (k *kept) has(want map[string]watchtest.State) bool { return maps.Equal(k.cached(), want) }

// settle waits at most limit until the cache has what the server has in its namespaces, and no later version.
func (k *kept) settle(t *testing.T, s *apiserver.Server, limit time.Duration) {
	t.Helper()
	for begin := time.Now(); ; <-time.After(100 * time.Millisecond) {
		synctest.Wait()
		want, err := watchtest.ServerState(s, savedMaps)
		if err != nil {
			t.Fatal(err)
		}
		version, err := strconv.ParseUint(k.Version(), 10, 64)
		if err == nil && version <= s.Revision() && k.has(want) {
			return
		}
		if time.Since(begin) > limit {
			t.Fatalf("not within %s: the cache has what the server has", limit)
		}
	}
}

func putMap(t *testing.T, s *apiserver.Server, name, value string) {
	t.Helper()
	_, err := s.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string]string{"v": value},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withSaved plays a test on the fake clock, with a server that has one object, and a directory to save in.
func withSaved(t *testing.T, o apiserver.Options, test func(t *testing.T, s *apiserver.Server, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o.Pipe = true
		s, err := apiserver.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		putMap(t, s, "one", "1")
		test(t, s, dir)
	})
}

// TestRestart stops a program and starts it again with its saved state.
func TestRestart(t *testing.T) {
	t.Parallel()
	damage := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		reason string
		damage func(t *testing.T, file string)
		away   func(s *apiserver.Server, before uint64)
		lists  bool // the restart has to list
		epochs int
		// DELETED events for objects that the server lost meanwhile; only loaded objects get one
		deleted int
	}{
		"resumes": {reason: "a restart resumes at the saved version", deleted: 1},
		"corrupt": {
			reason: "a damaged file is not loaded",
			damage: damage(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), lists: true,
		},
		"truncated": {
			reason: "half a file is not loaded", damage: damage(func(b []byte) []byte { return b[:len(b)/2] }),
			lists: true,
		},
		"empty": {reason: "an empty file is not loaded", damage: damage(func([]byte) []byte { return nil }), lists: true},
		"old": {reason: "after an hour the file may be of another history", damage: func(t *testing.T, file string) {
			before := time.Now().Add(-2 * time.Hour)
			if err := errors.Join(os.Chtimes(file, before, before),
				os.WriteFile(file+".123", []byte("half of a save"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, lists: true, deleted: 1},
		"compacted": {
			reason: "the server has compacted the saved version", away: func(s *apiserver.Server, _ uint64) { s.Compact(0) },
			lists: true, deleted: 1,
		},
		"rolled back": {
			reason: "the server was restored from a backup that is older than the saved state",
			away: func(s *apiserver.Server, before uint64) {
				if err := s.Rollback(before); err != nil {
					panic(err)
				}
			}, lists: true, epochs: 1, deleted: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, err := apiserver.New(apiserver.Options{Pipe: true})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for _, name := range []string{"one", "two", "three"} {
					putMap(t, s, name, "1")
				}
				before := s.Revision()
				first := startKept(t, s, dir)
				first.settle(t, s, time.Minute)
				putMap(t, s, "one", "2")
				putMap(t, s, "four", "1")
				first.settle(t, s, time.Minute)
				first.stop()

				files, err := filepath.Glob(filepath.Join(dir, "*"))
				if err != nil || len(files) != 1 {
					t.Fatalf("saved %v, %v; want one file", files, err)
				}
				if tc.damage != nil {
					tc.damage(t, files[0])
				}
				if tc.away != nil && tc.epochs > 0 {
					tc.away(s, before)
				} else {
					putMap(t, s, "two", "while away")
					putMap(t, s, "five", "1")
					if err := s.Remove(savedMaps, "ns", "three"); err != nil {
						t.Fatal(err)
					}
					if tc.away != nil {
						tc.away(s, before)
					}
				}

				asked := len(s.Log().Requests)
				second := startKept(t, s, dir)
				second.settle(t, s, 10*time.Minute)
				listed, epochs := 0, 0
				for _, q := range s.Log().Requests[asked:] {
					if q.Verb == "list" && q.Query.Get("limit") != "1" || q.Query.Get("sendInitialEvents") != "" {
						listed++
					}
				}
				if (listed > 0) != tc.lists {
					t.Errorf("%s: %d lists", tc.reason, listed)
				}
				rec := second.rec.Recording()
				deleted := 0
				for _, e := range rec.Events {
					switch e.Type {
					case store.Epoch:
						epochs++
					case store.Deleted:
						deleted++
					}
				}
				if deleted != tc.deleted {
					t.Errorf("%s: %d DELETED events, want %d", tc.reason, deleted, tc.deleted)
				}
				if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 {
					t.Errorf("%s: there are the files %v, %v", tc.reason, files, err)
				}
				if epochs != tc.epochs {
					t.Errorf("%s: %d EPOCH events, want %d", tc.reason, epochs, tc.epochs)
				}
				if _, wrong := rec.Check(); len(wrong) > 0 {
					t.Errorf("%s: %v", tc.reason, wrong)
				}
				second.stop()
			})
		})
	}
}

// TestRestartIsSyncedWhenCurrent: a restarted store sends SYNCED only after the server has confirmed that it caught up.
// The saved state is only as fresh as the file.
func TestRestartIsSyncedWhenCurrent(t *testing.T) {
	t.Parallel()
	changeOther := func(t *testing.T, s *apiserver.Server) {
		if _, err := s.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		reason         string
		away           func(t *testing.T, s *apiserver.Server)
		again          func(s *apiserver.Server) // runs some time after the restart
		after, atMost  time.Duration             // from the restart to SYNCED
		lists, watches int
	}{
		"nothing happened": {
			reason: "one request is enough when the server has not changed",
			away:   func(*testing.T, *apiserver.Server) {}, atMost: 100 * time.Millisecond, watches: 1,
		},
		"changes": {
			reason: "changes made in the meantime come before SYNCED",
			away: func(t *testing.T, s *apiserver.Server) {
				putMap(t, s, "one", "while away")
				putMap(t, s, "new", "1")
			},
			atMost: 100 * time.Millisecond, watches: 1,
		},
		"changes elsewhere": {
			reason: "the bookmark at the end of a short watch shows that nothing changed", away: changeOther,
			atMost: 4 * time.Second, watches: 2,
		},
		"no bookmarks": {
			reason: "a server that confirms nothing is listed",
			away: func(t *testing.T, s *apiserver.Server) {
				changeOther(t, s)
				s.On(apiserver.Match{Verb: "watch"}, apiserver.NoBookmarks())
			},
			atMost: 20 * time.Second, watches: 3, lists: 1,
		},
		"server does not say": {
			reason: "without an answer to the request a list decides",
			away: func(_ *testing.T, s *apiserver.Server) {
				s.On(apiserver.Match{Verb: "list", Times: 2}, apiserver.Answer(apiserver.Failure(500)))
			},
			atMost: 20 * time.Second, watches: 3, lists: 1,
		},
		"server is away": {
			reason: "no server confirms that the saved state is current",
			away: func(t *testing.T, s *apiserver.Server) {
				putMap(t, s, "one", "while away")
				s.Down()
			},
			again: func(s *apiserver.Server) {
				if err := s.Up(); err != nil {
					panic(err)
				}
			},
			after: time.Minute, atMost: 3 * time.Minute, watches: 1,
		},
		"watches are silent": {
			reason: "a watch without events proves nothing",
			away: func(t *testing.T, s *apiserver.Server) {
				putMap(t, s, "one", "while away")
				s.On(apiserver.Match{Verb: "watch", Times: 2}, apiserver.Silent(), apiserver.IgnoreTimeout())
			},
			atMost: 30 * time.Second, watches: 3, lists: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withSaved(t, apiserver.Options{}, func(t *testing.T, s *apiserver.Server, dir string) {
				first := startKept(t, s, dir)
				first.settle(t, s, time.Minute)
				first.stop()
				tc.away(t, s)
				asked, begin := len(s.Log().Requests), time.Now()
				second := startKept(t, s, dir)
				defer second.stop()
				if tc.again != nil {
					<-time.After(time.Minute)
					synctest.Wait()
					if second.HasSynced() {
						t.Errorf("%s: synced before that", tc.reason)
					}
					tc.again(s)
				}
				<-second.Synced()
				took := time.Since(begin)
				want, err := watchtest.ServerState(s, savedMaps)
				if err != nil {
					t.Fatal(err)
				}
				if took < tc.after || took > tc.atMost || !second.has(want) {
					t.Errorf("%s: synced after %s, with what the server has: %v", tc.reason, took, second.has(want))
				}
				synctest.Wait()
				lists, watches := 0, 0
				for _, q := range s.Log().Requests[asked:] {
					switch {
					case q.Verb == "list" && q.Query.Get("limit") != "1", q.Query.Get("sendInitialEvents") != "":
						lists++
						watches++
					case q.Verb == "watch":
						watches++
					}
				}
				if lists != tc.lists || watches != tc.watches {
					t.Errorf("%s: %d lists and %d watches, want %d and %d", tc.reason, lists, watches, tc.lists, tc.watches)
				}
				if st := second.Statuses()[0]; st.Phase != source.Watching || !st.Synced {
					t.Errorf("%s: the condition is %s, synced %v", tc.reason, st.Phase, st.Synced)
				}
				if _, wrong := second.rec.Recording().Check(); len(wrong) > 0 {
					t.Errorf("%s: %v", tc.reason, wrong)
				}
			})
		})
	}
}

// TestSavedNow: a running cache saves, so that a crash loses little. A cache of another cluster or of other namespaces
// does not load the file.
func TestSavedNow(t *testing.T) {
	t.Parallel()
	withSaved(t, apiserver.Options{TLS: true}, func(t *testing.T, s *apiserver.Server, dir string) {
		k := startKept(t, s, dir)
		k.settle(t, s, time.Minute)
		<-time.After(6 * time.Minute)
		synctest.Wait()
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
			t.Fatalf("saved %v after six minutes, want one file", files)
		}
		k.stop()

		narrow := startKept(t, s, dir, source.Namespaces("ns"))
		narrow.settle(t, s, time.Minute)
		narrow.stop()
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 2 {
			t.Errorf("saved %v, want a file for each store", files)
		}

		other, err := apiserver.New(apiserver.Options{Pipe: true, TLS: true}) // with another CA
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		k = startKept(t, other, dir)
		<-k.Synced()
		if k.Len() != 0 {
			t.Errorf("%d objects of another cluster", k.Len())
		}
		k.stop()
	})
}

// TestNotSavedAfterAPanic: a store that panicked is not saved, since the panic may have left it half changed.
func TestNotSavedAfterAPanic(t *testing.T) {
	t.Parallel()
	withSaved(t, apiserver.Options{TLS: true}, func(t *testing.T, s *apiserver.Server, dir string) {
		k := startKept(t, s, dir)
		k.settle(t, s, time.Minute)
		store.Break(k.Store)
		putMap(t, s, "two", "2")
		if err := <-k.done; err == nil {
			t.Error("Run returned no error after a panic of the store")
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 0 {
			t.Errorf("saved %v", files)
		}
		k.done <- nil
		k.stop()
	})
}
