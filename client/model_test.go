package client_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// known is the model of one key: the last write of this client, and its reads.
type known struct {
	version int                // of the last own write: no read is older
	dead    map[types.UID]bool // deleted by this client: no read shows them
	read    map[types.UID]int  // the newest version read of an incarnation: no read goes back
}

type op struct {
	kind string
	key  string
	n    int
}

// Reads through the client hold C1 and C2 in any order of own and foreign writes. The watch lags, breaks and lists
// again. Reads show only states of the server, never go back, and end at the server's state.
func TestOverlaidReadsAgainstAModel(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"create", "create", "modify", "modify", "apply", "patch", "finalize", "delete", "delete", "delete collection",
		"lost update",
		"foreign put", "foreign put", "foreign remove", "allow", "allow", "cut", "compact", "read",
	}
	rapid.Check(t, func(rt *rapid.T) {
		var ops []op
		for i := range rapid.IntRange(1, 40).Draw(rt, "length") {
			ops = append(ops, op{
				kind: rapid.SampledFrom(kinds).Draw(rt, fmt.Sprint("op ", i)),
				key:  rapid.SampledFrom([]string{"one", "two"}).Draw(rt, fmt.Sprint("key ", i)),
				n:    rapid.IntRange(1, 3).Draw(rt, fmt.Sprint("n ", i)),
			})
		}
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = runModel(t, ops) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func runModel(t *testing.T, ops []op) (failure string) {
	c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
	defer c.close()
	hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
	model := map[string]*known{}
	for _, name := range []string{"one", "two"} {
		model[name] = &known{dead: map[types.UID]bool{}, read: map[types.UID]int{}}
	}
	version := func(o metav1.Object) int {
		n, err := strconv.Atoi(o.GetResourceVersion())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// stamp returns the current revision. Each write stores it in n, so that a state shows when it was made.
	stamp := func() string { return fmt.Sprint(c.server.Revision()) }
	states := map[string]string{} // version → data.n, of all states that the server ever had
	remember := func(name string) {
		if live, err := c.server.Object(configMaps, "a", name); err == nil {
			data, _ := live.Object["data"].(map[string]any)
			states[live.GetResourceVersion()] = fmt.Sprint(data["n"])
		}
	}
	for i, o := range ops {
		m := model[o.key]
		fail := func(format string, args ...any) string {
			return fmt.Sprintf("after op %d (%s %s) of %v: ", i, o.kind, o.key, ops) + fmt.Sprintf(format, args...)
		}
		own := func(cm *corev1.ConfigMap, err error) string {
			if err == nil {
				m.version = max(m.version, version(cm))
			} else if !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
				return fail("%v", err)
			}
			return ""
		}
		before, _ := c.server.Object(configMaps, "a", o.key)
		cm := configMap(o.key, "n", stamp())
		switch o.kind {
		case "create":
			failure = own(cm, c.client.Create(c.ctx, cm))
		case "modify":
			failure = own(cm, client.Modify(c.ctx, c.client, cm, set("n", stamp())))
		case "apply":
			if before == nil || before.GetDeletionTimestamp() == nil {
				failure = own(cm, c.client.Apply(c.ctx, cm, client.Force()))
			}
		case "patch":
			patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"n":"`+stamp()+`"}}`))
			failure = own(cm, c.client.Patch(c.ctx, cm, patch, client.Always()))
		case "finalize": // adds or removes a finalizer
			failure = own(cm, client.Modify(c.ctx, c.client, cm, func(cm *corev1.ConfigMap) error {
				if len(cm.Finalizers) > 0 {
					cm.Finalizers = nil
				} else if cm.DeletionTimestamp == nil {
					cm.Finalizers = []string{"x/y"}
				}
				return nil
			}))
			if after, _ := c.server.Object(configMaps, "a", o.key); before != nil && after == nil {
				m.dead[before.GetUID()] = true
			}
		case "lost update":
			rule := c.server.On(apiserver.Match{Verb: "patch", Times: 1}, apiserver.DropAfter())
			failure = own(cm, client.Modify(c.ctx, c.client, cm, set("n", stamp())))
			rule.Off()
		case "delete":
			if err := c.client.Delete(c.ctx, cm); err != nil && !apierrors.IsNotFound(err) {
				failure = fail("%v", err)
			}
			if after, _ := c.server.Object(configMaps, "a", o.key); before != nil && after == nil {
				m.dead[before.GetUID()] = true
			}
		case "delete collection":
			if err := c.client.DeleteCollection(c.ctx, cm,
				client.Selection{Namespace: "a", Field: "metadata.name=" + o.key}); err != nil {
				failure = fail("%v", err)
			}
			if after, _ := c.server.Object(configMaps, "a", o.key); before != nil && after == nil {
				m.dead[before.GetUID()] = true
			}
		case "foreign put":
			f := foreign(o.key, "n", stamp())
			if before != nil {
				f.Finalizers = before.GetFinalizers()
			}
			c.put(f)
		case "foreign remove":
			if before != nil {
				if err := c.server.Remove(configMaps, "a", o.key); err != nil {
					failure = fail("%v", err)
				}
			}
		case "allow":
			hold.Allow(o.n)
			synctest.Wait()
		case "cut":
			for _, w := range c.server.Watches(apiserver.Match{}) {
				w.Cut()
			}
			synctest.Wait()
		case "compact": // the watch cannot resume: the cache lists again
			c.server.Compact(c.server.Revision())
			for _, w := range c.server.Watches(apiserver.Match{}) {
				w.Cut()
			}
			synctest.Wait()
		}
		if failure != "" {
			return failure
		}
		synctest.Wait()
		remember("one")
		remember("two")
		listed := map[string]*corev1.ConfigMap{}
		for cm, err := range client.List[corev1.ConfigMap](c.ctx, c.client) {
			if err != nil {
				return fail("%v", err)
			}
			listed[cm.Name] = cm
		}
		for name, m := range model {
			got, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key(name))
			if apierrors.IsNotFound(err) {
				if listed[name] != nil {
					return fail("%s is listed and cannot be got", name)
				}
				live, _ := c.server.Object(configMaps, "a", name)
				if live != nil && m.version == version(live) {
					return fail("%s was written by us at %d, is there, and cannot be read", name, m.version)
				}
				continue
			}
			switch {
			case err != nil:
				return fail("%v", err)
			case listed[name] == nil || listed[name].ResourceVersion != got.ResourceVersion:
				return fail("%s is got at %s and listed as %v", name, got.ResourceVersion, listed[name])
			case m.dead[got.UID]:
				return fail("%s is read although we deleted it", name)
			case version(got) < m.version:
				return fail("%s is read at %s, older than our write at %d", name, got.ResourceVersion, m.version)
			case version(got) < m.read[got.UID]:
				return fail("%s is read at %s after %d: reads go back", name, got.ResourceVersion, m.read[got.UID])
			}
			m.read[got.UID] = version(got)
			if want, ok := states[got.ResourceVersion]; !ok || want != got.Data["n"] {
				return fail("%s at %s reads %q; the server had %q", name, got.ResourceVersion, got.Data["n"], want)
			}
		}
	}
	hold.Release()
	if err := c.client.WaitForCache(c.ctx); err != nil {
		return fmt.Sprintf("%v: %v", ops, err)
	}
	for _, name := range []string{"one", "two"} {
		live, _ := c.server.Object(configMaps, "a", name)
		got, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key(name))
		switch {
		case live == nil && !apierrors.IsNotFound(err):
			return fmt.Sprintf("%v: at rest %s does not exist and is read as %v, %v", ops, name, got, err)
		case live != nil && (err != nil || got.ResourceVersion != live.GetResourceVersion()):
			return fmt.Sprintf("%v: at rest %s is %s and is read as %v, %v", ops, name, live.GetResourceVersion(), got, err)
		}
	}
	c.seen(configMaps, c.put(foreign("last"))) // the last event
	if n := c.cache.Stores(configMaps)[0].OverlayStats().Entries; n != 0 {
		return fmt.Sprintf("%v: at rest %d own writes are still laid over the store", ops, n)
	}
	return ""
}
