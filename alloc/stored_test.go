package alloc

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestStored: a change keeps the other slots, an empty change sends no write, and a missing object has its own error.
func TestStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		c, err := client.New(client.Options{Config: server.Config()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "cm"}}
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		r := &stored[corev1.ConfigMap, *corev1.ConfigMap]{c: c, obj: obj.DeepCopy(), name: "ip"}
		set := func(key string) func(*corev1.ConfigMap, *Slot) error {
			return func(_ *corev1.ConfigMap, s *Slot) error {
				s.Key = key
				return nil
			}
		}
		if err := r.change(t.Context(), inSlot, set("one")); err != nil {
			t.Fatal(err)
		}
		if s, err := r.slot(); err != nil || s.Key != "one" || r.at(inSlot).Key != "one" || r.marked() {
			t.Errorf("after a change: %+v, %v, marked %t", s, err, r.marked())
		}
		other := &stored[corev1.ConfigMap, *corev1.ConfigMap]{c: c, obj: obj.DeepCopy(), name: "port"} // an old version
		if err := other.change(t.Context(), inSlot, set("two")); err != nil {
			t.Fatal(err)
		}
		if got := other.at(inSlot).Key; got != "two" || Held(other.obj)[0] != "ip" {
			t.Errorf("beside another slot: %q, held %v", got, Held(other.obj))
		}
		before := len(server.Log().Select(apiserver.Match{Verb: "patch"}))
		if err := other.change(t.Context(), inSlot, set("two")); err != nil {
			t.Fatal(err)
		}
		if n := len(server.Log().Select(apiserver.Match{Verb: "patch"})) - before; n != 0 {
			t.Errorf("no change sent %d writes", n)
		}
		refused := errors.New("refused")
		err = other.change(t.Context(), inSlot, func(*corev1.ConfigMap, *Slot) error { return refused })
		if !errors.Is(err, refused) || other.gone(err) {
			t.Errorf("a refused change: %v, gone %t", err, other.gone(err))
		}
		if err := c.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		if err := r.change(t.Context(), inSlot, set("three")); !r.gone(err) {
			t.Errorf("after the deletion: %v", err)
		}
	})
}
