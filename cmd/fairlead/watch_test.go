package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// startWatch runs fairlead watch -o json against a server of the test.
func startWatch(t *testing.T, s *apiserver.Server, args ...string) *command.Watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	args = append([]string{
		"watch", "-o", "json", "--server", s.URL(), "--backoff-base", "10ms", "--backoff-cap", "50ms",
	}, args...)
	reader, writer := io.Pipe()
	interrupt, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	errs, code := &testlog.Book{}, make(chan int, 1)
	go func() {
		code <- run(interrupt, args, strings.NewReader(""), writer, errs)
		_ = writer.Close() // a pipe does not fail
	}()
	return command.NewWatching(ctx, t, reader, errs, func() int { stop(); return <-code })
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"value": value},
	}
}

func newServer(t *testing.T, objects ...*corev1.ConfigMap) *apiserver.Server {
	t.Helper()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, o := range objects {
		put(t, s, o)
	}
	return s
}

func put(t *testing.T, s *apiserver.Server, o *corev1.ConfigMap) {
	t.Helper()
	if _, err := s.Put(o); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, s *apiserver.Server, namespace, name string) {
	t.Helper()
	if err := s.Remove(configMaps, namespace, name); err != nil {
		t.Fatal(err)
	}
}

const watchConfigMaps = "configmaps.v1."

func TestWatchEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"))
	w := startWatch(t, s, watchConfigMaps, "-A", "--stats")

	added := w.Event("ADDED", "a/one")
	if !added.Initial || added.UID == "" || added.Object["data"].(map[string]any)["value"] != "1" {
		t.Errorf("initial object: %+v", added)
	}
	if l := w.Synced(); l.Count != 1 || l.ResourceVersion == "" {
		t.Errorf("synced: %+v", l)
	}
	put(t, s, configMap("a", "one", "2"))
	if l := w.Event("MODIFIED", "a/one"); l.PreviousResourceVersion != added.ResourceVersion ||
		l.Object["data"].(map[string]any)["value"] != "2" {
		t.Errorf("modified: %+v", l)
	}
	put(t, s, configMap("b", "two", "1"))
	if l := w.Event("ADDED", "b/two"); l.Initial {
		t.Errorf("added later: %+v", l)
	}
	remove(t, s, "a", "one")
	if l := w.Event("DELETED", "a/one"); l.Inferred || l.Object["data"].(map[string]any)["value"] != "2" {
		t.Errorf("deleted: %+v", l)
	}
	if code := w.Stop(); code != cli.ExitOK {
		t.Errorf("exit code %d, want 0; stderr: %s", code, w.Errs)
	}
	stats := 0
	for _, l := range w.All {
		if l.Type == "STATS" {
			stats++
		}
	}
	if stats != 2 {
		t.Errorf("%d STATS lines, want one when synced and one at the end", stats)
	}
}

func TestWatchExpires(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"), configMap("a", "two", "1"), configMap("a", "three", "1"))
	w := startWatch(t, s, watchConfigMaps, "-A")
	w.Synced()
	// While the watch is interrupted, objects change in all ways, and the history is compacted.
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	if err := s.WaitFor(ctx, func(l apiserver.Log) bool {
		return l.Open(apiserver.Match{Verb: "watch"}) == 1
	}); err != nil {
		t.Fatal(err)
	}
	s.Down()
	remove(t, s, "a", "one")
	put(t, s, configMap("a", "two", "2"))
	remove(t, s, "a", "three")
	put(t, s, configMap("a", "three", "again"))
	put(t, s, configMap("a", "four", "1"))
	s.Compact(0)
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	want := []string{"DELETED a/one", "MODIFIED a/two", "DELETED a/three", "ADDED a/three", "ADDED a/four"}
	for len(seen) < len(want) {
		l := w.Await("the difference", func(l command.Line) bool { return l.Key != "" })
		seen[l.Type+" "+l.Key] = true
		if l.Type == "DELETED" && !l.Inferred {
			t.Errorf("a deletion without an event must be marked as inferred: %+v", l)
		}
	}
	for _, e := range want {
		if !seen[e] {
			t.Errorf("no %s in %v", e, seen)
		}
	}
	w.Status("Watching")
	if code := w.Stop(); code != cli.ExitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestWatchForbidden(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"), configMap("b", "two", "1"))
	refused := s.On(apiserver.Match{Resource: "configmaps", Namespace: "b"}, apiserver.Answer(apiserver.Failure(403)))
	w := startWatch(t, s, watchConfigMaps, "-n", "a", "-n", "b")
	if l := w.Synced(); l.Count != 1 {
		t.Errorf("SYNCED comes once for all scopes that can be listed: %+v", l)
	}
	for _, l := range append([]command.Line{{}}, w.All...) {
		if l.Key == "b/two" {
			t.Errorf("an object of a forbidden namespace: %+v", l)
		}
	}
	forbids := func(l command.Line) bool { return l.Type == "STATUS" && l.Namespace == "b" && l.Reason == "Forbidden" }
	if !slices.ContainsFunc(w.All, forbids) { // statuses report the state, not each change
		w.Await("b is refused", forbids)
	}
	refused.Off()
	w.Event("ADDED", "b/two")
	w.Await("recovery of b", func(l command.Line) bool {
		return l.Type == "STATUS" && l.Namespace == "b" && l.Reason == "Watching"
	})
	w.Stop()
	synced := 0
	for _, l := range w.All {
		if l.Type == "SYNCED" {
			synced++
		}
	}
	if synced != 1 {
		t.Errorf("%d SYNCED, want 1", synced)
	}
}

func TestWatchQuarantine(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "good", "1"), configMap("a", "bad", "1"))
	poison := func(raw []byte) []byte { return bytes.Replace(raw, []byte(`"name":"bad"`), []byte(`"name":17`), 1) }
	if err := s.Poison(configMaps, "a", "bad", poison); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, s, watchConfigMaps, "-A")
	w.Await("QUARANTINED", func(l command.Line) bool { return l.Type == "QUARANTINED" && l.Error != "" })
	put(t, s, configMap("a", "next", "1"))
	w.Event("ADDED", "a/next")
	w.Stop()
	for _, l := range w.All {
		if l.Type == "ADDED" && l.Key == "a/good" {
			return
		}
	}
	t.Errorf("one bad object hides the good one: %+v", w.All)
}

func TestWatchRollback(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"))
	before := s.Revision()
	for i := range 20 {
		put(t, s, configMap("a", "later", strings.Repeat("x", i+1)))
	}
	w := startWatch(t, s, watchConfigMaps, "-A", "--silence-budget", "200ms")
	w.Synced()
	if err := s.Rollback(before); err != nil {
		t.Fatal(err)
	}
	s.DropConnections()
	w.Await("EPOCH", func(l command.Line) bool { return l.Type == "EPOCH" && l.Reason != "" })
	w.Event("DELETED", "a/later")
	put(t, s, configMap("a", "one", "after"))
	w.Event("MODIFIED", "a/one")
	w.Stop()
}

func TestWatchResync(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"))
	w := startWatch(t, s, watchConfigMaps, "-A", "--resync", "100ms")
	w.Event("SYNC", "a/one")
	w.Stop()
}

func TestWatchNotServed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	widgets := apiserver.Widgets()
	s.Withdraw(schema.GroupVersionResource{Group: widgets.Group, Version: widgets.Version, Resource: widgets.Resource})
	w := startWatch(t, s, widgets.Resource+"."+widgets.Version+"."+widgets.Group, "-A")
	w.Status("NotFound")
	s.Register(widgets)
	// Events and statuses come from two streams, so either may be first.
	synced, watching := false, false
	w.Await("SYNCED and STATUS Watching", func(l command.Line) bool {
		synced = synced || l.Type == "SYNCED"
		watching = watching || l.Type == "STATUS" && l.Reason == "Watching"
		return synced && watching
	})
	w.Stop()
}

func TestWatchMistakes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	missing := filepath.Join(t.TempDir(), "missing")
	tests := map[string]struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		"NoResource":   {"A resource is needed.", nil, cli.ExitUsage, "name one resource"},
		"TwoResources": {"Just one.", []string{"pods", "nodes"}, cli.ExitUsage, "name one resource"},
		"BadName":      {"A path is not a name.", []string{"a/b"}, cli.ExitUsage, "is not the name of a resource"},
		"Unknown": {
			"A resource unknown to discovery is reported at once.",
			[]string{"nosuch"},
			cli.ExitUsage,
			`no resource "nosuch"`,
		},
		"BadSelector": {
			"Selectors are checked before anything is sent.",
			[]string{watchConfigMaps, "-l", "a in ("},
			cli.ExitUsage, "cannot read label selector",
		},
		"BadOutput": {
			"So are formats.",
			[]string{watchConfigMaps, "-o", "xml"},
			cli.ExitUsage,
			"unknown output format",
		},
		"BadDuration": {"And durations.", []string{watchConfigMaps, "--max-watch", "0s"}, cli.ExitUsage, "--max-watch"},
		"Both": {
			"-n and -A contradict each other.",
			[]string{watchConfigMaps, "-n", "a", "-A"},
			cli.ExitUsage,
			"exclude each other",
		},
		"BadFlag": {"Unknown flags are reported.", []string{watchConfigMaps, "--nosuch"}, cli.ExitUsage, "unknown flag"},
		"BadServer": {
			"A server must be a URL.",
			[]string{watchConfigMaps, "--server", "nowhere"},
			cli.ExitUsage,
			"is not an http or https URL",
		},
		"BadToken": {
			"Files must exist.",
			[]string{watchConfigMaps, "--token-file", missing},
			cli.ExitUsage,
			"cannot read " + missing,
		},
		"TokenIsADir": {
			"And be files.",
			[]string{watchConfigMaps, "--token-file", filepath.Dir(missing)},
			cli.ExitUsage,
			"it is a directory",
		},
		"Unreachable": {
			"Resolving a name needs a server.",
			[]string{"pods", "--server", "http://127.0.0.1:1"},
			cli.ExitFailure, "does not answer",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
			defer cancel()
			args := append([]string{"watch", "--server", s.URL()}, tc.args...)
			var out, errs bytes.Buffer
			code := run(ctx, args, strings.NewReader(""), &out, &errs)
			if code != tc.code || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("%s\nexit code %d, want %d; stderr: %s", tc.reason, code, tc.code, errs.String())
			}
			if n := strings.Count(strings.TrimSpace(errs.String()), "\n"); n != 0 || out.Len() > 0 {
				t.Errorf("%s\nwant one line on stderr and none on stdout; got %q and %q", tc.reason, errs.String(),
					out.String())
			}
		})
	}
}

// TestWatchGone ends a watch whose reader has gone.
func TestWatchGone(t *testing.T) {
	t.Parallel()
	s := newServer(t, configMap("a", "one", "1"))
	reader, writer := io.Pipe()
	_ = reader.Close() // a pipe does not fail
	var errs bytes.Buffer
	code := run(t.Context(), []string{"watch", watchConfigMaps, "-A", "--server", s.URL(), "-o", "json"},
		strings.NewReader(""), writer, &errs)
	if code != cli.ExitFailure || !strings.Contains(errs.String(), "cannot print") {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}
