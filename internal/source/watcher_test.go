package source

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bookmarkAt(version string) string {
	return frameOf("BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"`+version+`"}}`)
}

// TestWatcherDelivers: new changes reach the sink in order, replays are dropped, and the position follows.
func TestWatcherDelivers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(), frameOf("ADDED", item("a", "6"))+frameOf("ADDED", item("a", "6"))+
		frameOf("MODIFIED", item("b", "7"))+bookmarkAt("9")+frameOf("DELETED", item("a", "10")))
	r.pos.complete("5")
	if err := r.watcher().watch(t.Context(), nil); !errors.Is(err, errEndedSoon) {
		t.Errorf("the watch ends with %v", err)
	}
	want := []string{"ADDED a 6", "MODIFIED b 7", "BOOKMARK 9", "DELETED a 10"}
	if diff := cmp.Diff(want, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	if r.counts.Events != 3 || r.counts.Suppressed != 1 || string(r.pos.version()) != "10" {
		t.Errorf("version %s, %+v", r.pos.version(), r.counts)
	}
	if q := r.server.queries[0]; !q.watch || q.version != "5" {
		t.Errorf("request %+v", q)
	}
	if r.steps.count("opens") != 1 || r.steps.count("delivers") != 1 {
		t.Errorf("progress %q: the first event alone is reported", r.steps.list)
	}
}

// TestWatcherQuarantines: an object that the sink rejects does not end the watch.
func TestWatcherQuarantines(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(), frameOf("ADDED", item("a", "6"))+bookmarkAt("9"))
	r.pos.complete("5")
	r.sink.refuse = errors.New("too large")
	if err := r.watcher().watch(t.Context(), nil); !errors.Is(err, errEndedSoon) {
		t.Errorf("the watch ends with %v", err)
	}
	if diff := cmp.Diff([]string{"ADDED a 6", "QUARANTINE a", "BOOKMARK 9"}, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// TestWatcherRereadsAnUnreadableFrame: an unreadable frame ends the watch. The second time it also requests a list.
func TestWatcherRereadsAnUnreadableFrame(t *testing.T) {
	t.Parallel()
	garbage := frameOf("ADDED", item("a", "6")) + `{"type":"NEWS","object":{}}` + "\n"
	r := newFixture(t, partConfig(), garbage, garbage)
	r.pos.complete("5")
	w := r.watcher()
	for n, want := range []int{0, 1} {
		var protocol *ProtocolError
		if err := w.watch(t.Context(), nil); !errors.As(err, &protocol) {
			t.Errorf("the watch ends with %v", err)
		}
		if got := r.steps.count("needs list"); got != want {
			t.Errorf("watch %d requests %d lists, want %d", n, got, want)
		}
	}
}

// TestWatcherCatchesUp: the content of an earlier run is confirmed at the version that the server had at the start.
func TestWatcherCatchesUp(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(), bookmarkAt("7")+bookmarkAt("8"), podList("8", ""))
	r.pos.start("5")
	r.resume.begin()
	if err := r.watcher().watch(t.Context(), nil); !errors.Is(err, errEndedSoon) {
		t.Errorf("the watch ends with %v", err)
	}
	if r.steps.count("catches up") != 1 || r.steps.count("up") != 0 {
		t.Errorf("progress %q, want to catch up once and nothing before", r.steps.list)
	}
	if q := r.server.queries[0]; q.timeout != resumeWatches[0] {
		t.Errorf("the first watch asks for %v", q.timeout)
	}
}

// TestWatcherEnds: an immediate end and an old version of the server are distinguished from other ends.
func TestWatcherEnds(t *testing.T) {
	t.Parallel()
	expired := frameOf("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	for reason, c := range map[string]struct {
		bodies []string
		is     func(error) bool
	}{
		"at once": {[]string{" "}, func(err error) bool { return errors.Is(err, ErrEnded) }},
		"expired": {[]string{expired}, isExpired},
		"an older bookmark of an older server": {
			[]string{bookmarkAt("3"), podList("4", "")}, func(err error) bool { return errors.Is(err, errRolledBack) },
		},
		"an older bookmark of a current server": {
			[]string{bookmarkAt("3"), podList("6", "")}, func(err error) bool { return errors.Is(err, ErrEnded) },
		},
		"another kind": {
			[]string{frameOf("ADDED", `{"kind":"Pod","apiVersion":"v2","metadata":{"name":"a","resourceVersion":"6"}}`)},
			func(err error) bool { _, is := errors.AsType[*ProtocolError](err); return is },
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, partConfig(), c.bodies...)
			r.pos.complete("5")
			if err := r.watcher().watch(t.Context(), nil); !c.is(err) {
				t.Errorf("the watch ends with %v", err)
			}
		})
	}
}
