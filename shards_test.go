package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// world is the external world of the replicas: for each object, it should have as many effects as were requested.
type world struct {
	t        *testing.T
	server   *apiserver.Server
	layout   shard.Layout
	graceful bool // no replica has crashed

	mu      sync.Mutex
	inside  map[client.Key]*replica
	effects map[string]int // by object and request
	serial  int
}

// replica is a process that shares the objects.
type replica struct {
	*running
	w    *world
	name string

	mu   sync.Mutex
	dead bool // none of its requests arrives
	seen map[client.Key]bool
}

// kill drops all later requests of the process.
func (p *replica) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *replica) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// cut is the connection of a process.
type cut struct {
	p  *replica
	rt http.RoundTripper
}

var errCut = errors.New("the process is dead")

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.p.isDead() {
		return nil, errCut
	}
	return c.rt.RoundTrip(r)
}

// WrappedRoundTripper returns the wrapped transport.
func (c cut) WrappedRoundTripper() http.RoundTripper { return c.rt }

// begin starts a replica.
func (w *world) begin(name string) *replica {
	p := &replica{w: w, name: name, seen: map[client.Key]bool{}}
	cfg := w.server.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return cut{p, rt} })
	mapper := meta.NewDefaultRESTMapper(nil) // discovery of client-go backs off on the real clock
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	pages := fairlead.WithSource(source.PageSize(5)) // with small pages, lists by namespace pay off
	rt := fairlead.New(cfg, pages, fairlead.WithMapper(mapper),
		fairlead.WithShards("default", "replicas", func(o *group.Options) {
			o.Layout, o.Member = w.layout, name
		}))
	observe.Source[corev1.ConfigMap](rt, Maps)
	observe.On(rt, Maps, p.observe)
	reconcile.New[corev1.ConfigMap](rt, "worker", reconcile.Func[corev1.ConfigMap](func(ctx context.Context,
		cm *corev1.ConfigMap,
	) (reconcile.Result, error) {
		return reconcile.Done, p.reconcile(ctx, rt, cm)
	}), reconcile.Owns[corev1.Secret]())
	p.running = run(rt)
	return p
}

func (p *replica) observe(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Type {
	case observe.Added:
		if p.seen[e.Key] {
			p.w.t.Errorf("%s: %s is added twice", p.name, e.Key)
		}
		p.seen[e.Key] = true
	case observe.Left:
		if !p.seen[e.Key] {
			p.w.t.Errorf("%s: %s leaves without being there", p.name, e.Key)
		}
		delete(p.seen, e.Key)
	case observe.Deleted:
		p.w.t.Errorf("%s: %s has a DELETED event", p.name, e.Key)
	}
	return nil
}

// reconcile makes one external effect for each request, and one child for each object.
func (p *replica) reconcile(ctx context.Context, rt *fairlead.Runtime, cm *corev1.ConfigMap) error {
	w, key := p.w, client.KeyOf(cm)
	if err := p.enter(rt, cm); err != nil {
		return err
	}
	defer w.leave(key, p)
	time.Sleep(100 * time.Millisecond)
	if want := cm.Data["want"]; want != cm.Data["done"] {
		w.effect(p, key.String()+"="+want)
		err := client.Modify(ctx, rt.Client(), cm, func(cm *corev1.ConfigMap) error {
			cm.Data["done"] = want
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, err := range client.List[corev1.Secret](ctx, rt.Client(), client.OwnedBy(cm)) {
		return err
	}
	child := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: w.unique(cm.Name)}}
	if err := reconcile.Own(rt.Client(), cm, child); err != nil {
		return err
	}
	return rt.Client().Create(ctx, child)
}

// enter records that a replica works on an object. No other replica may do so.
func (p *replica) enter(rt *fairlead.Runtime, cm *corev1.ConfigMap) error {
	w, key := p.w, client.KeyOf(cm)
	if err := rt.Shards().FenceOf(cm.Namespace, cm.UID); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.inside[key]; other != nil && !other.isDead() && !p.isDead() {
		w.t.Errorf("%s and %s work on %s", other.name, p.name, key)
	}
	w.inside[key] = p
	return nil
}

func (w *world) leave(key client.Key, p *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside[key] == p {
		delete(w.inside, key)
	}
}

// effect makes one external effect.
func (w *world) effect(p *replica, id string) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[id]++
	if w.effects[id] > 1 && w.graceful {
		w.t.Errorf("%s was made twice, the second time by %s", id, p.name)
	}
}

func (w *world) unique(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	return fmt.Sprintf("%s-%d", name, w.serial)
}

// want requests an effect for an object.
func (w *world) want(ns, name string) {
	w.mu.Lock()
	w.serial++
	n := w.serial
	w.mu.Unlock()
	_, err := w.server.Change(configMaps, ns, name, func(u *unstructured.Unstructured) {
		u.Object["data"].(map[string]any)["want"] = fmt.Sprint(n)
	})
	if apierrors.IsNotFound(err) {
		_, err = w.server.Put(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"want": fmt.Sprint(n)},
		})
	}
	if err != nil {
		w.t.Error(err)
	}
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// check compares the effects and the members at rest with the requests.
func (w *world) check(live []*replica, objects []client.Key) {
	t := w.t
	children := map[string]int{}
	all, err := w.server.Objects(secrets)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, o := range s.GetOwnerReferences() {
			children[s.GetNamespace()+"/"+o.Name]++
		}
	}
	for _, k := range objects {
		u, err := w.server.Object(configMaps, k.Namespace, k.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := unstructured.NestedStringMap(u.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		if data["want"] != data["done"] {
			t.Errorf("%s: %v has no effect", k, data)
		}
		if n := children[k.String()]; n != 1 && w.graceful || n < 1 {
			t.Errorf("%s has %d children", k, n)
		}
		seen := []string{}
		for _, p := range live {
			p.mu.Lock()
			if p.seen[k] {
				seen = append(seen, p.name)
			}
			p.mu.Unlock()
		}
		if len(seen) != 1 {
			t.Errorf("%s is observed by %q", k, seen)
		}
	}
	held := w.layout.Set()
	for _, p := range live {
		own := p.Shards().Held()
		if !held.Both(own).IsEmpty() {
			t.Errorf("slots %s are held twice", held.Both(own))
		}
		held = held.Union(own)
	}
	if !held.IsAll() {
		t.Errorf("%d members hold only the slots %s", len(live), held)
	}
}

// TestReplicasShare plays random schedules: replicas start, stop and crash while the objects change. One replica works
// on an object at a time, and no request is lost. Without a crash, each effect is made once and each object has one
// child.
func TestReplicasShare(t *testing.T) {
	t.Parallel()
	for _, by := range []shard.By{shard.Namespace, shard.UID} {
		for _, graceful := range []bool{true, false} {
			t.Run(fmt.Sprintf("by %s, graceful %v", by, graceful), func(t *testing.T) {
				t.Parallel()
				seed.Play(t, 3, func(t *testing.T, s uint64) {
					bubble(t, func(t *testing.T, server *apiserver.Server) {
						w := &world{
							t: t, server: server, layout: shard.Layout{By: by, Slots: 8}, graceful: graceful,
							inside: map[client.Key]*replica{}, effects: map[string]int{},
						}
						w.play(seed.Rand(s, "schedule"))
					})
				})
			})
		}
	}
}

func (w *world) play(r *rand.Rand) {
	var objects []client.Key
	for i := range 24 {
		k := client.Key{Namespace: fmt.Sprintf("%c-team", 'a'+i%12), Name: fmt.Sprint("o", i)}
		objects = append(objects, k)
		w.want(k.Namespace, k.Name)
	}
	if r.IntN(4) > 0 { // usually the namespaces exist
		for _, k := range objects[:12] {
			if _, err := w.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.Namespace}}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if r.IntN(2) == 0 { // owned objects are listed later than their owners
		w.server.On(apiserver.Match{Verb: "list", Resource: "secrets"},
			apiserver.Delay(time.Duration(r.IntN(2000))*time.Millisecond))
	}
	late := r.IntN(2) == 0 // sometimes the watch of the owned objects lags
	var hold *apiserver.Hold
	var live, gone []*replica
	names := 0
	join := func() {
		names++
		live = append(live, w.begin(fmt.Sprint("p", names)))
	}
	take := func() *replica {
		i := r.IntN(len(live))
		p := live[i]
		live = append(live[:i:i], live[i+1:]...)
		return p
	}
	for range 1 + r.IntN(3) {
		join()
	}
	for range 12 {
		switch n := r.IntN(8); {
		case n < 2 && len(live) < 4 || len(live) == 0:
			join()
		case n < 4 && len(live) > 1:
			p := take()
			gone = append(gone, p)
			p.stop()
		case n == 4 && !w.graceful:
			p := take()
			gone = append(gone, p)
			p.kill()
		default:
			for range r.IntN(12) {
				k := objects[r.IntN(len(objects))]
				w.want(k.Namespace, k.Name)
			}
		}
		switch {
		case hold != nil && r.IntN(3) == 0:
			hold.Release()
			hold = nil
		case hold == nil && late && r.IntN(2) == 0:
			hold = w.server.HoldEvents(apiserver.Match{Resource: "secrets"})
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
	}
	if hold != nil {
		hold.Release()
	}
	if len(live) == 0 {
		join()
	}
	time.Sleep(40 * time.Second)
	synctest.Wait()
	w.check(live, objects)
	for _, p := range append(live, gone...) {
		if err := p.end(); err != nil && !p.isDead() && !strings.Contains(err.Error(), "context canceled") {
			w.t.Errorf("%s: %v", p.name, err)
		}
	}
}
