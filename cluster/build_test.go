package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestModuleTextIsCurrent(t *testing.T) {
	t.Parallel()
	for file, copied := range map[string]string{"go.mod": goMod, "go.sum": goSum} {
		original, err := os.ReadFile(filepath.Join("..", "controlplane", file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(original), copied); diff != "" {
			t.Errorf("copy of controlplane/%s is out of date, run make generate (-original +copy):\n%s", file, diff)
		}
	}
	if !strings.Contains(goMod, "k8s.io/kubernetes "+kubernetesVersion) {
		t.Errorf("go.mod does not require k8s.io/kubernetes %s, which the binary claims to be", kubernetesVersion)
	}
}

// fakeGo installs a go command that needs no modules. It counts its builds and writes scripts as binaries.
func fakeGo(t *testing.T, build string) (runs string) {
	t.Helper()
	dir := t.TempDir()
	runs = filepath.Join(dir, "runs")
	script := `#!/bin/sh
case "$1" in
env) echo go1.99 ;;
list) echo "go: downloading example.com/m v1.0.0" >&2; echo example.com/a; echo example.com/b ;;
build)
	echo run >> "` + runs + `"
	` + build + `
	while [ "$1" != -o ]; do shift; done
	echo example.com/a >&2
	echo binary > "$2" ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return runs
}

func builds(t *testing.T, runs string) int {
	t.Helper()
	b, err := os.ReadFile(runs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "run")
}

func TestBuildOnce(t *testing.T) {
	runs := fakeGo(t, "sleep 0.3")
	cache := t.TempDir()
	seen := make(chan report, 100)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := build(t.Context(), BuildOptions{CacheDir: cache}, func(r report) { seen <- r })
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := builds(t, runs); got != 2 {
		t.Errorf("four concurrent calls ran %d builds, want one for each of the two binaries", got)
	}
	close(seen)
	stages := map[stage]bool{}
	var compiled report
	for p := range seen {
		stages[p.stage] = true
		if p.stage == stageCompile && p.done >= compiled.done {
			compiled = p
		}
	}
	want := map[stage]bool{stageWait: true, stageDownload: true, stageCompile: true, stageDone: true}
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Errorf("stages reported (-want +got):\n%s", diff)
	}
	if compiled.done != 2 || compiled.total != 2 || compiled.modules != 1 {
		t.Errorf("last report of the compilation is %+v, want 2 of 2 packages, 1 module", compiled)
	}

	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".tmp") {
			t.Errorf("%s is left in the cache", e.Name())
		}
	}
}

// The controller manager is built on request, beside the servers that are built already.
func TestBuildMore(t *testing.T) {
	runs := fakeGo(t, "")
	o := BuildOptions{CacheDir: t.TempDir()}
	for _, step := range []struct {
		manager bool
		runs    int
	}{{false, 2}, {true, 3}, {true, 3}, {false, 3}} {
		o.ControllerManager = step.manager
		bins, err := Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := builds(t, runs); got != step.runs {
			t.Errorf("ran %d builds, want %d", got, step.runs)
		}
		if (bins.ControllerManager != "") != step.manager || filepath.Base(bins.APIServer) != "kube-apiserver" {
			t.Errorf("got %+v", bins)
		}
	}
}

func TestBuildFails(t *testing.T) {
	runs := fakeGo(t, `echo "example.com/a: broken by design" >&2; exit 1`)
	cache := t.TempDir()
	for range 2 { // a failure is not cached
		_, err := Build(t.Context(), BuildOptions{CacheDir: cache})
		if err == nil || !strings.Contains(err.Error(), "broken by design") {
			t.Errorf("got %v, want the output of the go command", err)
		}
	}
	if got := builds(t, runs); got != 2 {
		t.Errorf("ran %d builds, want 2", got)
	}
}

func TestBuildIsCancelled(t *testing.T) {
	runs := fakeGo(t, "sleep 60")
	cache := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("stop")
	_, err := build(ctx, BuildOptions{CacheDir: cache}, func(r report) {
		if r.stage == stageCompile {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	if got := builds(t, runs); got > 1 {
		t.Errorf("%d builds were run after the cancellation", got)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	age := func(name string, days int) {
		path := filepath.Join(cache, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	age("old", 31)
	age("old-in-use", 31)
	age("young", 29)
	age("mine.tmp1", 0)
	age("other.tmp1", 31)
	lock, _, err := tryLock(filepath.Join(cache, "old-in-use.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.unlock()

	(&builder{cache: cache}).prune("mine")
	var left []string
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			left = append(left, e.Name())
		}
	}
	if diff := cmp.Diff([]string{"old-in-use", "other.tmp1", "young"}, left); diff != "" {
		t.Errorf("directories after prune (-want +got):\n%s", diff)
	}
}
