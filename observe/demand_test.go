package observe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/observe"
)

// An object is decoded once for all handlers that read it, and not for handlers that do not.
func TestObjectIsDecodedOnDemand(t *testing.T) {
	t.Parallel()
	never := func(int) bool { return false }
	always := func(int) bool { return true }
	const events = 40
	for name, tc := range map[string]struct {
		reason string
		asks   []func(event int) bool // for each observer, whether it reads the object
		want   int64                  // number of decodings
	}{
		"nobody":    {"a handler that looks at the key", []func(int) bool{never, never}, 0},
		"always":    {"handlers that read everything", []func(int) bool{always, always}, events},
		"one":       {"one of two", []func(int) bool{never, always}, events},
		"sometimes": {"each third", []func(int) bool{func(n int) bool { return n%3 == 0 }}, (events + 2) / 3},
		"no more": {
			"an observer that stops reading is noticed after eight events",
			[]func(int) bool{func(n int) bool { return n < 20 }},
			24,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				object := "asked-" + name
				observe.Source[Gadget](h, "widgets")
				for _, asks := range tc.asks {
					n := 0
					observe.On(h, "widgets", func(_ context.Context, e observe.Event[Gadget]) error {
						if e.Type == observe.Synchronized {
							return nil
						}
						if asks(n) {
							for range 2 {
								if o := e.Object(); o == nil || o.ResourceVersion != e.ResourceVersion() || o.Spec.Colour != fmt.Sprint(n) {
									t.Errorf("event %d at version %s has object %+v", n, e.ResourceVersion(), o)
								}
							}
						}
						n++
						return nil
					})
				}
				h.start()
				before := decoded(object)
				for i := range events {
					if _, err := h.server.Put(widget(object, fmt.Sprint(i))); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if got := decoded(object) - before; got != tc.want {
					t.Errorf("%s: decoded %d times, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
}

// A handler may keep an event: its object stays that of its version, whatever happens to it later.
func TestObjectOfAKeptEvent(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var typed []observe.Event[Gadget]
		var objects []observe.ObjectEvent
		observe.Source[Gadget](h, "widgets")
		observe.On(h, "widgets", func(_ context.Context, e observe.Event[Gadget]) error {
			typed = append(typed, e)
			return nil
		})
		observe.OnObject(h, "widgets", func(_ context.Context, e observe.ObjectEvent) error {
			objects = append(objects, e)
			return nil
		})
		h.start()
		before := decoded("kept")
		for i := range 3 {
			if _, err := h.server.Put(widget("kept", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := h.server.Remove(widgets, "default", "kept"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if decoded("kept") != before || len(typed) != 5 || len(objects) != 5 {
			t.Fatalf("decoded %d times, events %d and %d", decoded("kept")-before, len(typed), len(objects))
		}
		if typed[0].Object() != nil || objects[0].Object() != nil {
			t.Error("Synchronized has an object")
		}
		for i, e := range typed[1:] {
			o := e.Object()
			if o == nil || o.Spec.Colour != fmt.Sprint(min(i, 2)) {
				t.Fatalf("event %d is %+v", i, o)
			}
			if e.Type != observe.Deleted && o.ResourceVersion != e.ResourceVersion() {
				t.Errorf("event %d at version %s has %s", i, e.ResourceVersion(), o.ResourceVersion)
			}
			if other, is := objects[1+i].Object().(*Gadget); !is || other != o {
				t.Errorf("event %d: two objects of one version", i)
			}
			if prior := e.Prior(); i > 0 && (prior == nil || prior.Spec.Colour != fmt.Sprint(i-1)) {
				t.Errorf("event %d has prior %+v", i, prior)
			}
		}
	})
}
