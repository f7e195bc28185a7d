package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/scenario"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// TestRandomRestarts stops a program at random moments and starts it again, among faults and changes. Whenever the
// program reports that it is synced, it has what the server has. Sometimes a second program shares the directory, which
// is a misuse. It may damage only the saved files.
func TestRandomRestarts(t *testing.T) {
	t.Parallel()
	seed.Play(t, 20, func(t *testing.T, seed uint64) {
		t.Parallel()
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { (&restarts{rnd: rand.New(rand.NewPCG(seed, 7)), dir: dir}).play(t) })
	})
}

type restarts struct {
	rnd    *rand.Rand
	dir    string
	server *apiserver.Server
}

func (r *restarts) play(t *testing.T) {
	s, err := apiserver.New(apiserver.Options{Pipe: true, HTTP2: r.rnd.IntN(2) == 0, NoWatchList: r.rnd.IntN(3) == 0})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.server = s
	r.change(t)
	var seconds []*kept
	restored := false
	for run := range 6 {
		r.fault()
		k := startKept(t, s, r.dir, source.PageSize(1+r.rnd.IntN(5)))
		if r.rnd.IntN(4) == 0 {
			second := startKept(t, s, r.dir)
			defer second.stop()
			seconds = append(seconds, second)
		}
		select {
		case <-k.Synced():
		case <-time.After(2 * time.Hour):
			t.Fatalf("run %d is not synced within two hours: %+v", run, k.Statuses())
		}
		if !k.has(r.state(t)) {
			t.Errorf("run %d reports that it is synced but differs from the server", run)
		}
		for _, second := range seconds {
			if restored { // it saves the new history once it has noticed the rollback
				second.settle(t, s, 2*time.Hour)
			}
		}
		for range r.rnd.IntN(4) {
			r.fault()
			r.change(t)
			<-time.After(time.Duration(r.rnd.IntN(200)) * time.Second)
			if r.rnd.IntN(4) == 0 {
				s.Compact(0)
			}
			if r.rnd.IntN(3) == 0 {
				s.DropConnections()
			}
		}
		s.ClearFaults()
		restored = r.rnd.IntN(6) == 0
		if restored || r.rnd.IntN(2) == 0 {
			k.settle(t, s, 2*time.Hour)
			for _, v := range k.rec.Recording().CheckAtRest(r.state(t), k.cached()) {
				t.Errorf("run %d: %v", run, v)
			}
		}
		if _, wrong := k.rec.Recording().Check(); len(wrong) > 0 {
			t.Errorf("run %d: %v", run, wrong)
		}
		k.stop()
		r.away(t, restored)
	}
}

// state returns the objects of the server.
func (r *restarts) state(t *testing.T) map[string]watchtest.State {
	t.Helper()
	all, err := watchtest.ServerState(r.server, savedMaps)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// away changes the server while the program does not run.
func (r *restarts) away(t *testing.T, restored bool) {
	if restored { // no write may follow before the program notices, or the rollback could not be detected
		_ = r.server.Rollback(max(2, r.server.Revision()-uint64(r.rnd.IntN(6)))) // the revision may be compacted
		return
	}
	if r.rnd.IntN(3) > 0 {
		r.change(t)
	}
	if r.rnd.IntN(3) == 0 {
		r.server.Compact(0)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Ext(f) != ".store" {
			continue // a temporary file of the other program
		}
		old := time.Now().Add(-2 * time.Hour)
		switch r.rnd.IntN(8) {
		case 0:
			err = os.Remove(f)
		case 1:
			var info os.FileInfo
			if info, err = os.Stat(f); err == nil {
				err = os.Truncate(f, r.rnd.Int64N(info.Size()+1))
			}
		case 2:
			err = os.Chtimes(f, old, old)
		case 3:
			err = os.WriteFile(f+".123", []byte("half of a save"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *restarts) change(t *testing.T) {
	for range r.rnd.IntN(8) {
		name := fmt.Sprint("o", r.rnd.IntN(8))
		switch r.rnd.IntN(5) {
		case 0:
			_ = r.server.Remove(savedMaps, "ns", name) // an error means that there is no such object
		case 1:
			other := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
				StringData: map[string]string{"v": fmt.Sprint(r.rnd.Uint64())},
			}
			if _, err := r.server.Put(other); err != nil {
				t.Fatal(err)
			}
		default:
			putMap(t, r.server, name, fmt.Sprint(r.rnd.Uint64()))
		}
	}
}

func (r *restarts) fault() {
	if r.rnd.IntN(2) == 0 {
		m := apiserver.Match{
			Verb: []string{"list", "watch", ""}[r.rnd.IntN(3)], Resource: "configmaps",
			Times: 1 + r.rnd.IntN(3),
		}
		r.server.On(m, scenario.Faults(r.rnd)...)
	}
}

// TestSavedAfterRollback: the saved state belongs to the server's present history, even when that reaches the saved
// version again.
func TestSavedAfterRollback(t *testing.T) {
	t.Parallel()
	withSaved(t, apiserver.Options{}, func(t *testing.T, s *apiserver.Server, dir string) {
		before := s.Revision()
		putMap(t, s, "two", "of the first history")
		for run := range 3 {
			k := startKept(t, s, dir)
			<-k.Synced()
			if run == 1 { // the second history is about to reach the saved version
				if err := s.Rollback(before); err != nil {
					t.Fatal(err)
				}
				<-time.After(5 * time.Minute)
				putMap(t, s, "three", "of the second history")
			}
			k.settle(t, s, 10*time.Minute)
			k.stop()
		}
	})
}
