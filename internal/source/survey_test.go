package source

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/shard"
)

// TestSurveyorReads: a surveyor reads pages of one version with the selectors of the scope, and single objects by name.
func TestSurveyorReads(t *testing.T) {
	t.Parallel()
	server := &answers{bodies: []string{
		podList("5", "t", item("a", "1")), podList("5", "", item("b", "2")), podList("6", "", item("a", "1"), item("b", "2")),
	}}
	sel := Selectors{Label: "x=y", Field: "f=1"}
	v := newSurveyor(partConfig(), server.open, func() (Selectors, *shard.Set) { return sel, nil })
	var names []string
	collect := func(h *Header) { names = append(names, string(h.Name)) }
	var pages []bool
	err := v.List(t.Context(), collect, func(version string, more bool) error {
		if pages = append(pages, more); version != "5" {
			t.Errorf("a page at version %s", version)
		}
		return nil
	})
	if err != nil || !slices.Equal(names, []string{"a", "b"}) || !slices.Equal(pages, []bool{true, false}) {
		t.Errorf("objects %q, pages with more %v, error %v", names, pages, err)
	}
	names = nil
	version, err := v.Get(t.Context(), "ns", "b", func(o *Object) error { collect(&o.Header); return nil })
	if err != nil || version != "6" || !slices.Equal(names, []string{"b"}) {
		t.Errorf("objects %q at %s, error %v", names, version, err)
	}
	q := server.queries
	if !q[0].metadata || q[0].limit != surveyFirst || q[1].limit != surveyPage || q[1].next != "t" || !q[0].isUrgent() ||
		q[1].isUrgent() || q[0].selectors.Label != "x=y" || q[2].selectors.Field != "f=1,metadata.name=b" {
		t.Errorf("requests %+v", q)
	}
}

// TestSurveyOfEndlessPages: a list whose pages repeat with new tokens ends with an error.
func TestSurveyOfEndlessPages(t *testing.T) {
	t.Parallel()
	server := &answers{bodies: []string{podList("5", "t", item("a", "1")), podList("5", "u", item("a", "1"))}}
	v := newSurveyor(partConfig(), server.open, func() (Selectors, *shard.Set) { return Selectors{}, nil })
	err := v.List(t.Context(), func(*Header) {}, func(string, bool) error { return nil })
	if _, ok := errors.AsType[*ProtocolError](err); !ok || len(server.queries) != 2 {
		t.Errorf("error %v after %d requests", err, len(server.queries))
	}
}

// TestSurveyorEnds: without slots, and after close, it sends no request.
func TestSurveyorEnds(t *testing.T) {
	t.Parallel()
	server := &answers{}
	none := fourSlots.Set()
	get := func(v *Surveyor) error {
		_, err := v.Get(t.Context(), "ns", "a", func(*Object) error { return nil })
		return err
	}
	v := newSurveyor(partConfig(), server.open, func() (Selectors, *shard.Set) { return Selectors{}, &none })
	if err := get(v); !errors.Is(err, errNoSlots) {
		t.Errorf("without slots: %v", err)
	}
	v = newSurveyor(partConfig(), server.open, func() (Selectors, *shard.Set) { return Selectors{}, nil })
	if err := get(v); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("a failed request: %v", err)
	}
	v.close()
	if err := get(v); !errors.Is(err, errNotRunning) || len(server.queries) != 1 {
		t.Errorf("after close: %v, and %d requests", err, len(server.queries))
	}
}
