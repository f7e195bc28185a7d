package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBlackboxIdle: an idle server gets few requests.
func TestBlackboxIdle(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	begin := time.Now()
	p := startProgram(t, s.url, "--silence-budget", "100ms")
	p.synced()
	p.until("probed ten times", func() bool { return s.count((*wireRequest).probe) >= 10 })
	if n := s.count((*wireRequest).watch); n != 1 {
		t.Errorf("%d watches", n)
	}
	n, budgets := s.count((*wireRequest).probe), int(time.Since(begin)/(100*time.Millisecond))
	if n > budgets+1 {
		t.Errorf("%d probes in %d times the silence budget", n, budgets)
	}
	if n := s.relists(); n != 0 {
		t.Errorf("%d lists", n)
	}
	s.put("a/one", "second")
	p.agrees(s)
	p.finish()
}

// TestBlackboxOtherResources runs a server that sends no bookmarks, and whose version changes only by other resources.
func TestBlackboxOtherResources(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	begin := time.Now()
	p := startProgram(t, s.url, "--silence-budget", "100ms")
	p.synced()
	for i := 0; i < 40 || s.relists() < 1 && p.limit.Err() == nil; i++ {
		pause(s, 50*time.Millisecond)
		s.mu.Lock()
		s.version++
		s.mu.Unlock()
	}
	lists, watches := s.relists(), s.count((*wireRequest).watch)
	budgets := int(time.Since(begin) / (100 * time.Millisecond)) // at least 20, and more on a slow machine
	if lists < 1 || lists > 6*budgets/20 {
		t.Errorf("%d lists in %d times the silence budget; they must become rare", lists, budgets)
	}
	if watches > 14*budgets/20 {
		t.Errorf("%d watches in %d times the silence budget", watches, budgets)
	}
	p.finish()
}

// TestBlackboxSilentWatches keeps watches open and delivers nothing.
func TestBlackboxSilentWatches(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		deaf    int32
		relists int
	}{
		"Once":   {"The resumed watch delivers the missed changes.", 1, 0},
		"Always": {"A list delivers it.", always, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			s.put("a/one", "first")
			s.put("a/two", "first")
			var n atomic.Int32
			s.take = func(w http.ResponseWriter, r *wireRequest) bool {
				if !r.watch() || n.Add(1) > tc.deaf {
					return false
				}
				_ = s.first(w, r)
				s.hold(w, r)
				return true
			}
			p := startProgram(t, s.url, "--silence-budget", "2s") // long enough for the answers of a slow machine
			p.synced()
			s.put("a/one", "second")
			s.remove("a/two")
			p.agrees(s)
			if got := s.relists(); got != tc.relists {
				t.Errorf("%s\n%d lists, want %d", tc.reason, got, tc.relists)
			}
			p.finish()
		})
	}
}

// rollBack restores the server from a backup: it has other objects and a lower version, and its watches stay silent.
func (s *wire) rollBack(version int, objects ...wireObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.history = version, nil
	clear(s.objects)
	for _, o := range objects {
		s.objects[o.key] = o
	}
}

func TestBlackboxRollback(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"", "--no-watch-list"} {
		t.Run("With"+flag, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			one := s.put("a/one", "first")
			two := s.put("a/two", "first")
			back := s.version
			s.put("a/one", "second")
			s.put("a/later", "first")
			var deaf atomic.Bool
			s.take = func(w http.ResponseWriter, r *wireRequest) bool {
				if r.watch() && deaf.Load() && r.resume() && r.query.Get("resourceVersion") > fmt.Sprint(back) {
					s.hold(w, r) // from a version that does not exist any more
					return true
				}
				return false
			}
			flags := []string{"--silence-budget", "150ms"}
			if flag != "" {
				flags = append(flags, flag)
			}
			p := startProgram(t, s.url, flags...)
			p.synced()
			deaf.Store(true)
			s.rollBack(back, one, two)
			epoch := p.await("EPOCH", func(l printed) bool { return l.kind == "EPOCH" })
			if epoch.reason == "" {
				t.Errorf("no reason: %v", epoch)
			}
			p.agrees(s)
			s.put("a/two", "after")
			p.agrees(s)
			p.finish()
			if n := p.countOf("EPOCH"); n != 1 {
				t.Errorf("%d EPOCH", n)
			}
		})
	}
}

// TestBlackboxLagging lists from a replica that lags behind, again and again. The program never shows an older state.
func TestBlackboxLagging(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	old := fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		s.version, s.objects["a/one"].raw)
	s.put("a/one", "second")
	s.put("a/two", "first")
	var expire expiry
	lagging := first(4, (*wireRequest).list, body(old))
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if expire.refuses(w, r) {
			return true
		}
		if r.initial() && r.n == 0 {
			_ = s.first(w, r)
			expire.Store(true)
			return true // and end
		}
		if r.initial() {
			refuse(w, 422, "Invalid")
			return true
		}
		if r.list() && r.n%2 == 1 { // two replicas, of which one lags
			return lagging(w, r)
		}
		return false
	}
	p := startProgram(t, s.url)
	p.synced()
	p.until("listed", func() bool {
		return s.count(func(r *wireRequest) bool { return r.list() && !r.probe() }) > 0
	})
	s.put("a/three", "first")
	p.agrees(s)
	p.finish()
	if p.printed("EPOCH") || p.printed("DELETED") || p.printed("MODIFIED") {
		t.Errorf("the state of a lagging replica was shown: %v", p.all)
	}
}

// TestBlackboxGuard loses many objects in one list.
func TestBlackboxGuard(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		objects int
		left    int
		wrong   int32 // wrong lists; later ones are right
		flags   []string
		deleted bool
	}{
		"Many": {
			"The loss of more than a hundred is confirmed by a second list, which differs.", 150, 20, 1, nil, false,
		},
		"Few":        {"The loss of up to a hundred is accepted.", 150, 60, 1, nil, true},
		"Off":        {"0 accepts every loss.", 150, 20, 1, []string{"--bulk-delete-guard", "0"}, true},
		"Lower":      {"The number is configurable.", 10, 6, 1, []string{"--bulk-delete-guard", "3"}, false},
		"Empty":      {"An empty list over known objects is confirmed.", 3, 0, 1, nil, false},
		"EmptyOff":   {"Even then.", 3, 0, 1, []string{"--bulk-delete-guard", "0"}, false},
		"EmptyTwice": {"A second list with the same loss is accepted.", 3, 0, 2, nil, true},
		"ManyTwice":  {"A second list with the same loss is accepted.", 150, 20, 2, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			var kept []string
			for i := range tc.objects {
				if o := s.put(fmt.Sprintf("a/%03d", i), "first"); i < tc.left {
					kept = append(kept, o.raw)
				}
			}
			version := s.version
			var expire expiry
			wrong := first(tc.wrong, func(r *wireRequest) bool { return r.n > 0 && r.list() && !r.probe() },
				func(w http.ResponseWriter, _ *http.Request) {
					_, _ = fmt.Fprintf(w,
						`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
						version,
						strings.Join(kept, ","))
				})
			s.take = func(w http.ResponseWriter, r *wireRequest) bool {
				switch {
				case expire.refuses(w, r):
					return true
				case r.n == 0:
					_ = s.first(w, r)
					expire.Store(true)
					return true
				case r.initial():
					refuse(w, 422, "Invalid")
					return true
				}
				return wrong(w, r)
			}
			p := startProgram(t, s.url, tc.flags...)
			p.synced()
			s.put("z/marker", "first")
			p.event("ADDED", "z/marker")
			if got := p.printed("DELETED"); got != tc.deleted {
				t.Errorf("%s\ndeleted: %v, want %v", tc.reason, got, tc.deleted)
			}
			if n := p.countOf("DELETED"); tc.deleted && n != tc.objects-tc.left {
				t.Errorf("%s\n%d deleted, want %d", tc.reason, n, tc.objects-tc.left)
			}
			p.finish()
		})
	}
}

// TestBlackboxOpaqueVersions runs a server whose versions are not numbers.
func TestBlackboxOpaqueVersions(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	cm := wireConfigMap
	frames := []string{
		frame("MODIFIED", cm("a/one", "zulu", "u1", "2")) + frame("DELETED", cm("a/two", "alpha", "u2", "1")),
		frame("DELETED", cm("a/two", "alpha", "u2", "1")) + frame("ADDED", cm("a/three", "Mike-1", "u3", "1")) +
			bookmark("00012", false),
		frame("MODIFIED", cm("a/three", "0x7f", "u3", "2")) + frame("DELETED", cm("a/one", "zulu", "u1", "2")),
	}
	var next atomic.Int32
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		switch {
		case r.initial():
			refuse(w, 422, "Invalid")
		case r.list():
			body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"start"},"items":[`+
				cm("a/one", "papa", "u1", "1")+","+cm("a/two", "bravo", "u2", "1")+`]}`)(w, r.http)
		default:
			i := int(next.Add(1)) - 1
			want := []string{"start", "alpha", "00012"}
			if i >= len(frames) {
				s.hold(w, r)
				return true
			}
			if got := r.query.Get("resourceVersion"); got != want[i] {
				t.Errorf("watch %d resumes at %q, want %q", i, got, want[i])
			}
			body(frames[i])(w, r.http)
		}
		return true
	}
	p := startProgram(t, s.url)
	p.synced()
	p.event("DELETED", "a/one")
	if l := p.state["a/three"]; len(p.state) != 1 || l.version != "0x7f" {
		t.Errorf("state %v", p.state)
	}
	p.finish()
}

// TestBlackboxUID replaces an object by another one of the same name, in one event and in one list.
func TestBlackboxUID(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	again := func(uid string) {
		s.mu.Lock()
		o := s.objects["a/one"]
		o.uid = uid
		s.objects["a/one"] = o
		s.mu.Unlock()
		s.put("a/one", uid)
	}
	p := startProgram(t, s.url)
	p.synced()
	again("other-1")
	if l := p.event("DELETED", "a/one"); l.uid == "other-1" {
		t.Errorf("the old object is deleted, not the new one: %v", l)
	}
	if l := p.event("ADDED", "a/one"); l.uid != "other-1" || l.members["initial"] != nil {
		t.Errorf("the new one: %v", l)
	}
	p.finish()
}
