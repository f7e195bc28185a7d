package store_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/scenario"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// TestDisturbedCache opens, releases and moves stores in random order while objects change and requests fail. At rest
// every handle shows what the server has, and each subscriber got exactly those changes. Each wanted scope is watched
// once, and no other scope is watched.
func TestDisturbedCache(t *testing.T) {
	t.Parallel()
	seed.Play(t, 10, func(t *testing.T, seed uint64) {
		t.Parallel()
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			p := &disturbedCache{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), covers: map[*store.Store]coverage{}}
			p.play(dir)
			if t.Failed() {
				t.Log(strings.Join(p.log, "\n"))
			}
		})
	})
}

// coverage is what a store should have.
type coverage struct {
	namespaces []string // empty: all
	red, moved bool
}

func (c coverage) has(o *unstructured.Unstructured) bool {
	return (!c.red || o.GetLabels()["color"] == "red") &&
		(len(c.namespaces) == 0 || slices.Contains(c.namespaces, o.GetNamespace()))
}

// claim is a handle with a subscriber.
type claim struct {
	*store.Handle
	rec *watchtest.Recorder
}

type disturbedCache struct {
	t      *testing.T
	rnd    *rand.Rand
	server *apiserver.Server
	cache  *store.Cache
	linger time.Duration
	claims []*claim
	covers map[*store.Store]coverage
	log    []string
}

func (p *disturbedCache) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *disturbedCache) play(dir string) {
	server, err := apiserver.New(apiserver.Options{Pipe: true, NoWatchList: p.rnd.IntN(3) == 0})
	if err != nil {
		p.t.Fatal(err)
	}
	defer server.Close()
	p.server, p.linger = server, -1
	opt := store.CacheOptions{Config: server.Config(), SaveEvery: time.Minute}
	if p.rnd.IntN(2) == 0 {
		p.linger = time.Minute
	}
	if p.rnd.IntN(2) == 0 {
		opt.Dir = dir
	}
	opt.Linger = p.linger
	if p.cache, err = store.NewCache(opt); err != nil {
		p.t.Fatal(err)
	}
	if p.rnd.IntN(2) == 0 {
		p.open() // before the cache runs
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.cache.Run(ctx) }()
	for range 3 {
		for range 5 + p.rnd.IntN(30) {
			p.step()
		}
		p.atRest()
	}
	if p.rnd.IntN(2) == 0 {
		for len(p.claims) > 0 {
			p.release()
		}
		p.settle(2 * time.Minute)
		if n := len(p.cache.Stores(savedMaps)); n != 0 {
			p.t.Errorf("%d stores are left", n)
		}
		if n := server.Log().Open(apiserver.Match{}); n != 0 {
			p.t.Errorf("%d requests are open", n)
		}
	} else { // at a random moment
		p.step()
	}
	cancel()
	if err := <-ended; err != nil {
		p.t.Error(err)
	}
	for len(p.claims) > 0 {
		p.release()
	}
}

func (p *disturbedCache) step() {
	switch p.rnd.IntN(16) {
	case 0, 1, 2:
		p.open()
	case 3, 4:
		p.release()
	case 5, 6:
		p.move()
	case 7:
		p.fault()
	case 8:
		if p.rnd.IntN(2) == 0 {
			p.server.Compact(0)
		}
		p.server.DropConnections()
	case 9, 10:
		p.settle(time.Duration(p.rnd.IntN(90)) * time.Second)
	default:
		p.change()
	}
}

func (p *disturbedCache) settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// namespaces returns some of three; none stands for all.
func (p *disturbedCache) namespaces() []string {
	var out []string
	for _, ns := range []string{"a", "b", "c"} {
		if p.rnd.IntN(2) == 0 {
			out = append(out, ns)
		}
	}
	return out
}

func (p *disturbedCache) open() {
	c := coverage{namespaces: p.namespaces(), red: p.rnd.IntN(3) == 0}
	options := []source.Option{source.Namespaces(c.namespaces...), source.PageSize(1 + p.rnd.IntN(4))}
	if c.red {
		options = append(options, source.Labels("color=red"))
	}
	h, err := p.cache.Open(store.Request{Resource: savedMaps, Namespaced: true, Options: options})
	if err != nil {
		p.t.Fatal(err)
	}
	if was, shared := p.covers[h.Store]; shared && (was.red != c.red || !slices.Equal(was.namespaces, c.namespaces)) {
		p.t.Errorf("opened %+v and got %+v", c, was)
	}
	c.moved = p.covers[h.Store].moved
	p.covers[h.Store] = c
	p.note("open %+v: %p", c, h.Store)
	name := fmt.Sprint("claim ", len(p.log))
	p.claims = append(p.claims, &claim{h, watchtest.Record(h.Store, watchtest.RecorderOptions{Name: name})})
}

func (p *disturbedCache) pick() (i int, ok bool) {
	if len(p.claims) == 0 {
		return 0, false
	}
	return p.rnd.IntN(len(p.claims)), true
}

func (p *disturbedCache) release() {
	i, ok := p.pick()
	if !ok {
		return
	}
	c := p.claims[i]
	p.note("release %p", c.Store)
	c.rec.Close()
	<-c.rec.Done()
	c.Release()
	p.claims = slices.Delete(p.claims, i, i+1)
}

func (p *disturbedCache) move() {
	i, ok := p.pick()
	if !ok {
		return
	}
	c := p.covers[p.claims[i].Store]
	c.namespaces, c.moved = p.namespaces(), true
	p.note("move %p to %v", p.claims[i].Store, c.namespaces)
	if err := p.claims[i].SetNamespaces(c.namespaces...); err != nil {
		p.t.Error(err)
	}
	p.covers[p.claims[i].Store] = c
}

func (p *disturbedCache) fault() {
	m := apiserver.Match{
		Verb: []string{"list", "watch", ""}[p.rnd.IntN(3)], Resource: "configmaps",
		Times: 1 + p.rnd.IntN(3),
	}
	p.server.On(m, scenario.Faults(p.rnd)...)
}

func (p *disturbedCache) change() {
	ns, name := string('a'+rune(p.rnd.IntN(3))), fmt.Sprint("o", p.rnd.IntN(5))
	if p.rnd.IntN(3) == 0 {
		_ = p.server.Remove(savedMaps, ns, name) // an error means that there is no such object
		return
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Data:       map[string]string{"v": fmt.Sprint(p.rnd.Uint64())},
	}
	if p.rnd.IntN(2) == 0 {
		cm.Labels = map[string]string{"color": "red"}
	}
	if _, err := p.server.Put(cm); err != nil {
		p.t.Fatal(err)
	}
}

// atRest ends the faults and compares the handles, the subscribers and the watches with the server.
func (p *disturbedCache) atRest() {
	p.t.Helper()
	p.server.ClearFaults()
	p.settle(time.Hour) // longer than a watch with a fault can live
	all, err := p.server.Objects(savedMaps)
	if err != nil {
		p.t.Fatal(err)
	}
	wanted := map[string]int{}
	seen := map[*store.Store]bool{}
	for _, c := range p.claims {
		cover, want, have := p.covers[c.Store], map[string]watchtest.State{}, map[string]watchtest.State{}
		for _, o := range all {
			if cover.has(o) {
				want[o.GetNamespace()+"/"+o.GetName()] = watchtest.State{
					UID: string(o.GetUID()), Version: o.GetResourceVersion(),
				}
			}
		}
		for r := range c.Snapshot().All() {
			have[r.Key().String()] = watchtest.StateOf(r)
		}
		recording := c.rec.Recording()
		recording.Filtered = cover.red || cover.moved // objects may leave the selector and come back
		folded, violations := recording.Check()
		for _, v := range violations {
			p.t.Errorf("%s of %p, %+v: %v", recording.Name, c.Store, cover, v)
		}
		for what, got := range map[string]map[string]watchtest.State{"cache": have, "events": folded} {
			for _, d := range watchtest.Difference(want, got) {
				p.t.Errorf("%s of %p, %+v: %s", what, c.Store, cover, d)
			}
		}
		if !c.HasSynced() {
			p.t.Errorf("%p, %+v, is not synced: %+v", c.Store, cover, c.Statuses())
		}
		if seen[c.Store] {
			continue
		}
		seen[c.Store] = true
		scopes := cover.namespaces
		if len(scopes) == 0 {
			scopes = []string{""}
		}
		for _, ns := range scopes {
			wanted[ns]++
		}
	}
	open := map[string]int{}
	for _, q := range p.server.Log().Requests {
		if q.Verb == "watch" && !q.Done {
			open[q.Namespace]++
		}
	}
	if !maps.Equal(wanted, open) {
		p.t.Errorf("open watches by namespace are %v, wanted %v", open, wanted)
	}
}
