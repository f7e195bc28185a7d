package fairlead_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestPersistence runs a program twice: the second run resumes where the first one ended.
func TestPersistence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		asked := 0
		for i, want := range [][]string{{"Added x", "Synchronized"}, {"Added x", "Added y", "Synchronized"}} {
			put(t, s, []string{"x", "y"}[i])
			var d diary
			rt := fairlead.New(s.Config(), fairlead.WithPersistence(dir))
			observeMaps(rt, &d)
			r := run(rt)
			if err := rt.WaitSynced(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Second)
			synctest.Wait()
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, d.all()); diff != "" {
				t.Errorf("run %d (-want +got):\n%s", i+1, diff)
			}
			for _, q := range s.Log().Requests[asked:] {
				if i > 0 && q.Resource == "configmaps" &&
					(q.Verb == "list" && q.Query.Get("limit") != "1" || q.Query.Get("sendInitialEvents") != "") {
					t.Errorf("run %d listed: %v", i+1, q.Query)
				}
			}
			asked = len(s.Log().Requests)
		}
	})
}

// Each cluster has its own directory below the given one, whatever its name.
func TestDirectoriesOfClusters(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config(), fairlead.WithPersistence(dir))
		observeMaps(rt, &diary{})
		names := []string{".", "..", "../..", "a/b", "%2E"}
		for _, name := range names {
			observeMaps(rt.Join(name, s.Config()), &diary{})
		}
		r := run(rt)
		if err := rt.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		saved, err := filepath.Glob(filepath.Join(dir, "*", "*.store"))
		if len(saved) != len(names) || err != nil {
			t.Errorf("saved are %q, %v", saved, err)
		}
		if outside, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.store")); len(outside) > 0 || err != nil {
			t.Errorf("outside of the directory are %q, %v", outside, err)
		}
	})
}
