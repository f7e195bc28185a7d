package controller

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
)

// texts returns the texts of prefixes.
func texts(prefixes []netip.Prefix) (all []string) {
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	slices.Sort(all)
	return all
}

func TestClusterRanges(t *testing.T) {
	t.Parallel()
	r := newClusterRanges()
	if r.all() != nil {
		t.Errorf("ranges of nothing: %v", r.all())
	}
	a, b := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	c := netip.MustParsePrefix("34.0.0.0/20")
	r.set("nodes", []netip.Prefix{b, a})
	r.set("servicecidrs", []netip.Prefix{a, c})
	if diff := cmp.Diff([]string{"10.0.0.0/8", "34.0.0.0/20", "fd00::/8"}, texts(r.all())); diff != "" {
		t.Errorf("of both resources (-want +got):\n%s", diff)
	}
	r.set("servicecidrs", nil)
	if diff := cmp.Diff([]string{"10.0.0.0/8", "fd00::/8"}, texts(r.all())); diff != "" {
		t.Errorf("of the remaining resource (-want +got):\n%s", diff)
	}
}

// nodeObject is a Node as the source delivers it.
func nodeObject(t *testing.T, name, version, cidr string) *source.Object {
	t.Helper()
	o := source.Object{Raw: []byte(`{"metadata":{"name":"` + name + `","uid":"u","resourceVersion":"` + version +
		`"},"spec":{"podCIDR":"` + cidr + `"}}`)}
	if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
		t.Fatal(err)
	}
	return &o
}

// TestRangeSink follows changes, keeps the ranges of an unreadable object, and publishes only different ranges.
func TestRangeSink(t *testing.T) {
	t.Parallel()
	var got []string
	published := 0
	var refused []string
	s := &rangeSink{
		read: podCIDRs, known: map[string][]netip.Prefix{},
		changed: func(all []netip.Prefix) { got = texts(all); published++ },
		done:    func(error) {},
		refused: func(name string, _ error) { refused = append(refused, name) },
	}
	list := s.Replace()
	if err := errors.Join(list.Put(nodeObject(t, "one", "1", "10.0.0.7/24")), list.Put(nodeObject(t, "two", "2", "")),
		list.Put(nodeObject(t, "odd", "3", "10.9.0.0/24"))); err != nil {
		t.Fatal(err)
	}
	list.Commit(source.Commit{Version: "3"})
	if diff := cmp.Diff([]string{"10.0.0.0/24", "10.9.0.0/24"}, got); diff != "" {
		t.Errorf("after a list (-want +got):\n%s", diff)
	}
	published = 0
	if err := s.Apply(source.Modified, nodeObject(t, "one", "4", "10.0.0.7/24")); err != nil || published > 0 {
		t.Errorf("%d publications without a difference, %v", published, err)
	}
	if err := s.Apply(source.Modified, nodeObject(t, "two", "5", "10.0.1.0/24")); err != nil || published != 1 {
		t.Errorf("%d publications of a new range, %v", published, err)
	}
	if err := s.Apply(source.Modified, nodeObject(t, "one", "6", "nonsense")); err == nil {
		t.Error("an unreadable range is no error")
	}
	list = s.Replace()
	if err := list.Put(nodeObject(t, "two", "7", "10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	s.Quarantine(source.Quarantined{Name: "odd"})
	if missing, known := list.Missing(); missing != 1 || known != 3 {
		t.Errorf("%d of %d objects are missing from the list, want 1 of 3", missing, known)
	}
	list.Commit(source.Commit{Version: "7"})
	if diff := cmp.Diff([]string{"10.0.1.0/24", "10.9.0.0/24"}, got); diff != "" {
		t.Errorf("after a list without one, with an unreadable object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"odd"}, refused); diff != "" {
		t.Errorf("reported objects (-want +got):\n%s", diff)
	}
	if err := s.Apply(source.Deleted, nodeObject(t, "two", "8", "10.0.1.0/24")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"10.9.0.0/24"}, got); diff != "" || s.Known().Version != "8" {
		t.Errorf("after a deletion, at version %s (-want +got):\n%s", s.Known().Version, diff)
	}
}

// TestChecklist: the channel is closed with the last source, and unavailable sources are logged once.
func TestChecklist(t *testing.T) {
	t.Parallel()
	log := &logLines{}
	c := newChecklist(slog.New(slog.NewTextHandler(log, nil)), "a", "b")
	open := func() bool {
		select {
		case <-c.empty:
			return false
		default:
			return true
		}
	}
	c.done("b", errors.New("no right"))
	c.done("b", nil)
	c.done("other", nil)
	if !open() || len(log.all()) > 0 {
		t.Errorf("pending %t, logged %q", open(), log.all())
	}
	c.done("a", nil)
	c.done("a", errors.New("late"))
	if lines := log.all(); open() || len(lines) != 1 || !strings.Contains(lines[0], `missing="b (no right)"`) {
		t.Errorf("pending %t, logged %q", open(), lines)
	}
}
