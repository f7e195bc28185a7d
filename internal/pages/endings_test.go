package pages

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestEndingsAreBounded: a full list may refuse valid sessions, but never accepts an ended one.
func TestEndingsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var e endings
	var ended []*Session
	e.Until = map[string]time.Time{}
	for i := range maxEndings + 100 {
		s := &Session{ID: fmt.Sprint(i), Until: now.Add(time.Hour + time.Duration(i)*time.Second)}
		if ended = append(ended, s); i < maxEndings {
			e.Until[hashOf(s.ID)] = s.Until
			continue
		}
		e.add(s, now)
	}
	var stored corev1.ConfigMap
	e.store(&stored)
	size := 0
	for name, value := range stored.Data {
		size += len(name) + len(value)
	}
	if size > 500<<10 || len(stored.Data) != maxEndings+1 {
		t.Errorf("%d entries take %d bytes", len(stored.Data), size)
	}
	read := endingsOf(stored.Data)
	for _, s := range ended {
		if !e.has(s) || !read.has(s) {
			t.Fatalf("the ended session %s is admitted", s.ID)
		}
	}
	for _, other := range []struct {
		reason string
		until  time.Duration
		has    bool
	}{
		{"it expires with the evicted sessions", time.Hour + 50*time.Second, true},
		{"it expires later", time.Hour + 101*time.Second, false},
	} {
		if s := (&Session{ID: "other", Until: now.Add(other.until)}); e.has(s) != other.has || read.has(s) != other.has {
			t.Errorf("%s: %v, %v", other.reason, e.has(s), read.has(s))
		}
	}
	last := &Session{ID: "last", Until: now.Add(9 * time.Hour)}
	e.add(last, now.Add(8*time.Hour))
	if d := cmp.Diff(map[string]time.Time{hashOf("last"): last.Until}, e.Until); d != "" || !e.Floor.IsZero() {
		t.Errorf("expired sessions stay in the list: %s %v", d, e.Floor)
	}
}

// TestEndingsOfOthers: invalid entries are skipped.
func TestEndingsOfOthers(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour).UTC()
	text := until.Format(time.RFC3339Nano)
	got := endingsOf(map[string]string{"x": text, hashOf("a"): text, hashOf("b"): "soon", floorKey: "never"})
	if d := cmp.Diff(endings{Until: map[string]time.Time{hashOf("a"): until}}, got); d != "" {
		t.Error(d)
	}
}
