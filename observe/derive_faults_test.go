package observe_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/observe"
)

// Scale is derived from a config map. A weight that is not a number cannot be encoded.
type Scale struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Weight            float64 `json:"weight"`
}

func (s *Scale) DeepCopyObject() runtime.Object {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// weigh derives a scale of 3 from "3". A scale of "none" cannot be encoded, "panic" panics, and "=x" becomes the object
// x.
func weigh(c *corev1.ConfigMap) *Scale {
	v := c.Data["v"]
	s := &Scale{Weight: math.NaN()}
	if name, ok := strings.CutPrefix(v, "="); ok {
		s.Name, s.Namespace, s.UID = name, "a", "1"
		name, v, _ = strings.Cut(name, ":")
		s.Name = name
	}
	if v == "panic" {
		panic("cannot weigh")
	}
	if w, err := strconv.ParseFloat(v, 64); err == nil {
		s.Weight = w
	}
	return s
}

func scales(known *observe.Collection[Scale]) []string {
	var all []string
	for key, s := range known.All() {
		all = append(all, key.Name+" "+strconv.FormatFloat(s.Weight, 'f', -1, 64))
	}
	slices.Sort(all)
	return all
}

func quarantined(known *observe.Collection[Scale]) []string {
	var all []string
	for _, q := range known.Store().Quarantined() {
		all = append(all, q.Key())
	}
	slices.Sort(all)
	return all
}

// An input from which no valid object can be derived is quarantined. Other objects are derived, also at the start, and
// its earlier derived object stays.
func TestInvalidDerivedObjectBlocksNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/good", "1")
		h.put("a/none", "none")
		h.put("a/panic", "panic")
		sourceOf(h, Maps)
		observe.Map(h, "scales", Maps, weigh)
		known := observe.Known[Scale](h, "scales")
		h.start()
		step := func(when string, want, aside []string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, scales(known)); d != "" {
				t.Errorf("%s: %s", when, d)
			}
			if d := cmp.Diff(aside, quarantined(known)); d != "" {
				t.Errorf("%s, quarantined: %s", when, d)
			}
		}
		select {
		case <-known.Synced():
		default:
			t.Fatalf("not synced: %v", h.Unsynced())
		}
		step("at the start", []string{"good 1"}, []string{"a/none", "a/panic"})
		h.put("a/gone", "none")
		h.remove("a/gone")
		step("gone before anything was made of it", []string{"good 1"}, []string{"a/none", "a/panic"})
		h.put("a/none", "2")
		h.put("a/panic", "3")
		step("mended", []string{"good 1", "none 2", "panic 3"}, nil)
		h.put("a/good", "none")
		h.put("a/panic", "panic")
		step("broken later", []string{"good 1", "none 2", "panic 3"}, []string{"a/good", "a/panic"})
		h.remove("a/good")
		h.put("a/panic", "4")
		step("gone and mended", []string{"none 2", "panic 4"}, nil)
	})
}

// A derived object that cannot be stored does not compete for its key.
func TestInvalidDerivedObjectClaimsNoKey(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/1", "=one:none")
		h.put("a/2", "=one:2")
		sourceOf(h, Maps)
		observe.Map(h, "scales", Maps, weigh)
		known := observe.Known[Scale](h, "scales")
		h.start()
		step := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, scales(known)); d != "" {
				t.Error(d)
			}
		}
		step("one 2")
		h.put("a/1", "=one:1")
		step("one 1")
		h.put("a/0", "=one:none")
		step("one 1")
		h.put("a/2", "=one:22")
		h.remove("a/1")
		step("one 22")
		h.remove("a/0")
		h.remove("a/2")
		step()
	})
}

// A filter that panics excludes the object, on whatever goroutine it runs.
func TestFilterThatPanics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("a/bad", "1")
		var got story
		sourceOf(h, Maps)
		observe.Filter(h, "good", Maps, func(c *corev1.ConfigMap) bool {
			if c.Name == "bad" {
				panic("oh no")
			}
			return true
		})
		observe.On(h, "good", got.observe)
		known := observe.Known[corev1.ConfigMap](h, "good")
		h.start()
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, got.take()); d != "" {
			t.Error(d)
		}
		if n := known.Len(); n != 1 {
			t.Errorf("%d objects are known", n)
		}
		for key := range known.All() {
			if key.Name == "bad" {
				t.Error("an object is known although its filter panics")
			}
		}
		if _, err := known.Get(cache.Key{Namespace: "a", Name: "bad"}); err == nil {
			t.Error("an object is known although its filter panics")
		}
		if !strings.Contains(h.log.String(), "oh no") {
			t.Errorf("the panic is not reported:\n%s", h.log)
		}
	})
}
