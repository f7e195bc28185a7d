package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
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
	"github.com/fairlead-io/fairlead/shard"
)

// TestDisturbedSlots adds and removes slots in random order while objects change, answers are late, requests fail and
// subscribers are slow. At rest the store has what the server has in these slots, and every subscriber got exactly
// those changes. No subscriber got a DELETED event for an existing object.
func TestDisturbedSlots(t *testing.T) {
	t.Parallel()
	seed.Play(t, 20, func(t *testing.T, seed uint64) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := &disturbedSlots{t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
			p.play()
			if t.Failed() {
				t.Log(strings.Join(p.log, "\n"))
			}
		})
	})
}

type disturbedSlots struct {
	t        *testing.T
	rnd      *rand.Rand
	server   *apiserver.Server
	sharding *source.Sharding
	watched  *watchtest.Watched
	recs     []*watchtest.Recorder
	epochs   bool // the test rolls history back
	ordered  bool // versions have an order
	answers  []answer
	log      []string
	layout   shard.Layout
}

// answer is an answer to an own write that has not arrived yet.
type answer struct {
	write   *store.Write
	object  *unstructured.Unstructured
	deleted bool
}

func (p *disturbedSlots) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%d ", p.server.Revision())+fmt.Sprintf(format, args...))
}

func (p *disturbedSlots) play() {
	layout := shard.Layout{By: shard.By(p.rnd.IntN(2)), Slots: 1 << p.rnd.IntN(4)}
	opt := apiserver.Options{
		Pipe: true, NoWatchList: p.rnd.IntN(3) == 0, ShardedListAndWatch: p.rnd.IntN(3) > 0,
		OpaqueVersions: p.rnd.IntN(6) == 0,
	}
	var err error
	if p.server, err = apiserver.New(opt); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.server.Close)
	if p.rnd.IntN(6) == 0 {
		p.server.On(apiserver.Match{Func: func(r apiserver.Request) bool { return r.Query.Get("shardSelector") != "" }},
			apiserver.Answer(apiserver.Failure([]int{http.StatusBadRequest, http.StatusInternalServerError}[p.rnd.IntN(2)])))
	}
	p.ordered = !opt.OpaqueVersions
	p.epochs = p.ordered && p.rnd.IntN(4) == 0
	p.sharding, p.layout = source.NewSharding(layout), layout
	p.note("%+v %+v", layout, opt)
	cfg := source.Config{
		Resource: savedMaps, Sharding: p.sharding, PageSize: 1 + p.rnd.IntN(6),
	}
	if p.rnd.IntN(3) == 0 {
		cfg.Namespaces = []string{"a", "b", "c", "d", "e", "f"}
	}
	p.watched = watchtest.Watch(p.t, p.server, cfg)
	p.record(store.FromSnapshot)
	for range 3 {
		for range 10 + p.rnd.IntN(60) {
			p.step()
		}
		p.hold()
		p.atRest()
	}
	if p.rnd.IntN(2) == 0 {
		p.step() // at a random moment
	}
	for _, a := range p.answers {
		a.write.Fail()
	}
	if err := p.watched.Stop(); err != nil {
		p.t.Error(err)
	}
}

func (p *disturbedSlots) step() {
	switch p.rnd.IntN(20) {
	case 0, 1, 2:
		p.hold()
	case 3:
		p.disturb()
	case 4:
		if p.rnd.IntN(2) == 0 {
			p.server.Compact(0)
		}
		p.server.DropConnections()
	case 5, 6, 7:
		p.settle(time.Duration(p.rnd.IntN(90)) * time.Second)
	case 8:
		p.recs[p.rnd.IntN(len(p.recs))].Block()
	case 9:
		p.recs[p.rnd.IntN(len(p.recs))].Unblock()
	case 10:
		if len(p.recs) < 4 {
			p.record(store.FromSnapshot)
		}
	case 11, 12:
		p.arrive()
	case 13:
		// A subscriber that looks only after the versions are as high again cannot detect a rollback.
		if p.epochs && p.rnd.IntN(3) == 0 && p.server.Revision() > 20 && !p.sharding.Held().IsEmpty() {
			p.server.ClearFaults()
			p.settle(time.Hour)
			to := p.server.Revision() - uint64(p.rnd.IntN(10))
			p.note("roll back to %d: %v", to, p.server.Rollback(to))
			p.settle(time.Hour)
		}
	default:
		p.change()
	}
}

// record adds a subscriber. It fails on a DELETED event for an object that exists.
func (p *disturbedSlots) record(from store.From) {
	p.recs = append(p.recs, p.watched.RecordWith(watchtest.RecorderOptions{
		Name: fmt.Sprint("subscriber ", len(p.recs)), Subscribe: store.SubscribeOptions{From: from},
		Handle: func(e store.Event) {
			if e.Type != store.Deleted || p.epochs {
				return
			}
			now, err := p.server.Object(savedMaps, e.Key.Namespace, e.Key.Name)
			if err == nil && now.GetUID() == e.Object.UID() {
				p.t.Errorf("%s has a DELETED event but exists at version %s", e.Key, now.GetResourceVersion())
			}
		},
	}))
}

func (p *disturbedSlots) hold() {
	if p.rnd.IntN(3) == 0 {
		p.moveBoundaries()
	}
	layout := p.layout
	set := layout.Set()
	switch p.rnd.IntN(6) {
	case 0:
	case 1:
		set = layout.All()
	default:
		for slot := range layout.Len() {
			if p.rnd.IntN(2) == 0 {
				set = set.Union(layout.Set(slot))
			}
		}
	}
	p.note("hold %s", set)
	if err := p.sharding.Set(set); err != nil {
		p.t.Error(err)
	}
}

// moveBoundaries loses some slots, and moves the boundaries between slots that are not held.
func (p *disturbedSlots) moveBoundaries() {
	keep := p.layout.Set()
	for slot := range p.sharding.Held().Slots() {
		if p.rnd.IntN(2) == 0 {
			keep = keep.Union(p.layout.Set(slot))
		}
	}
	if err := p.sharding.Set(keep); err != nil {
		p.t.Error(err)
	}
	starts := p.layout.Starts()
	for first := 1; first < len(starts); first++ {
		end := first // the boundaries from first to before end may move
		for end < len(starts) && !keep.Holds(end-1) && !keep.Holds(end) {
			end++
		}
		var low, high uint64 = starts[first-1], math.MaxUint64
		if end < len(starts) {
			high = starts[end]
		}
		for i := first; i < end; i++ {
			h := shard.Hash(string('a'+rune(p.rnd.IntN(6)))) + uint64(p.rnd.IntN(2))
			starts[i] = min(max(h, low), high)
		}
		slices.Sort(starts[first:end])
		first = end
	}
	var err error
	if p.layout, err = p.layout.WithStarts(p.layout.Version()+1, starts); err != nil {
		p.t.Fatal(err)
	}
	p.note("held are %s, boundaries are %x", keep, starts)
	if keep.In(p.layout).Len() != keep.Len() {
		p.t.Errorf("the boundaries of held slots have moved: %s", keep)
	}
}

func (p *disturbedSlots) disturb() {
	m := apiserver.Match{Verb: []string{"list", "watch", ""}[p.rnd.IntN(3)], Times: 1 + p.rnd.IntN(3)}
	p.note("fault of %q", m.Verb)
	p.server.On(m, scenario.Faults(p.rnd)...)
}

func (p *disturbedSlots) settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// change writes an object, as another client or as an own write with a late answer.
func (p *disturbedSlots) change() {
	key := store.Key{Namespace: string('a' + rune(p.rnd.IntN(6))), Name: fmt.Sprint("o", p.rnd.IntN(3))}
	own := p.rnd.IntN(3) == 0 && p.ordered && !p.epochs // otherwise a late answer looks like a newer one
	var w *store.Write
	if own {
		w = p.watched.Store.BeginWrite(key, store.WriteContext{})
	}
	if p.rnd.IntN(3) == 0 {
		was, err := p.server.Object(savedMaps, key.Namespace, key.Name)
		if err == nil {
			err = p.server.Remove(savedMaps, key.Namespace, key.Name)
		}
		p.note("remove %s, own %t: %v", key, own, err)
		switch {
		case !own:
		case err != nil:
			w.Fail()
		default:
			p.answers = append(p.answers, answer{w, was, true})
		}
		return
	}
	now, err := p.server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data:       map[string]string{"v": fmt.Sprint(p.rnd.Uint64())},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.note("put %s, own %t: %s", key, own, now.GetResourceVersion())
	if own {
		p.answers = append(p.answers, answer{w, now, false})
	}
}

// arrive delivers the answers to own writes in their order.
func (p *disturbedSlots) arrive() {
	for len(p.answers) > 0 && p.rnd.IntN(4) > 0 {
		p.answer()
	}
}

func (p *disturbedSlots) answer() {
	a := p.answers[0]
	p.answers = p.answers[1:]
	if a.deleted {
		result := a.write.Deleted(a.object.GetUID())
		p.note("answer: %s/%s is deleted: %s", a.object.GetNamespace(), a.object.GetName(), result)
		return
	}
	raw, err := json.Marshal(a.object)
	if err != nil {
		p.t.Fatal(err)
	}
	result, err := a.write.Done(source.JSON, raw)
	p.note("answer: %s/%s %s: %s %v", a.object.GetNamespace(), a.object.GetName(), a.object.GetResourceVersion(), result,
		err)
	if result == store.NeedsBarrier {
		p.t.Errorf("the answer for %s/%s has no slot", a.object.GetNamespace(), a.object.GetName())
	}
}

// atRest ends the faults and compares the store and the subscribers with the server.
func (p *disturbedSlots) atRest() {
	p.t.Helper()
	p.server.ClearFaults()
	for len(p.answers) > 0 {
		p.answer()
	}
	for _, r := range p.recs {
		r.Unblock()
	}
	p.settle(time.Hour) // longer than a watch with a fault can live
	p.note("at rest, holding %s", p.sharding.Held())
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Hour)
	defer cancel()
	if err := p.sharding.Wait(ctx); err != nil {
		p.t.Error(err)
	}
	if err := p.watched.Store.Barrier(ctx); err != nil {
		p.t.Error(err)
	}
	for _, v := range p.watched.Check() {
		if p.epochs && v.Invariant == "W11" { // a deleted object may exist again
			continue
		}
		p.t.Errorf("holding %s: %v", p.sharding.Held(), v)
	}
	if n := p.watched.Store.OverlayStats().Entries; n > 0 && p.sharding.Held().IsEmpty() {
		p.t.Errorf("%d overlaid own writes are left", n)
	}
}
