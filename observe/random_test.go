package observe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/observe"
)

// ledger folds the events of one observer. It fails if they are not a valid history (W2, W3, W5, W6).
type ledger struct {
	t      *testing.T
	name   string
	known  *observe.Collection[corev1.ConfigMap]
	keep   func(*corev1.ConfigMap) bool
	mu     sync.Mutex
	state  map[cache.Key]string
	synced int
	left   bool
}

// leave excludes the ledger from the comparison at the end.
func (l *ledger) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = true
}

func (l *ledger) hasLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

func (l *ledger) take(e observe.Event[corev1.ConfigMap]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := func(text string) {
		l.t.Errorf("%s: %s: %s %s, prior %v, object %v; last state: %q", l.name, text, e.Type, e.Key, e.Prior(), e.Object(),
			l.state[e.Key])
	}
	if e.Type == observe.Synchronized {
		l.synced++
		return
	}
	last, had := l.state[e.Key]
	if prior := e.Prior(); (prior != nil) != had || had && prior.Data["v"] != last {
		wrong("the prior is not what was given last")
	}
	if had == (e.Type == observe.Added) {
		wrong("the type does not fit")
	}
	if e.Initial && l.synced > 0 {
		wrong("an initial object after Synchronized")
	}
	switch e.Type {
	case observe.Deleted:
		delete(l.state, e.Key)
		return
	case observe.Resync:
		if e.Object().Data["v"] != last {
			wrong("the resync is not of what was given last")
		}
	}
	l.state[e.Key] = e.Object().Data["v"]
	if now, err := l.known.Get(e.Key); err == nil && number(now.ResourceVersion) < number(e.ResourceVersion()) {
		wrong("what is known is older than the event: " + now.ResourceVersion)
	}
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

// Each observer gets a history whose fold is the state, whatever happens to the objects, the connection and the
// observers. Observers are slow, fail, panic and leave, also from their own handler.
func TestEveryObserverFoldsToTheState(t *testing.T) {
	t.Parallel()
	seed.Play(t, 20, func(t *testing.T, seed uint64) {
		t.Parallel()
		bubble(t, func(t *testing.T, h *host) { playHistory(t, h, rand.New(rand.NewPCG(seed, 1))) })
	})
}

func playHistory(t *testing.T, h *host, rnd *rand.Rand) {
	even := func(c *corev1.ConfigMap) bool { return number(c.Data["v"])%2 == 0 }
	sourceOf(h, Maps)
	observe.Filter(h, "even", Maps, even)
	observe.Map(h, "copies", Maps, func(c *corev1.ConfigMap) *corev1.ConfigMap {
		return configMap(c.Namespace, c.Name, "v", c.Data["v"])
	})
	shared := make(chan struct{}, 2) // an executor of several observers
	pool := func(fn func()) {
		shared <- struct{}{}
		go func() {
			defer func() { <-shared }()
			fn()
		}()
	}
	var ledgers []*ledger
	observers := map[*ledger]*observe.Observer{}
	seeds := rand.New(rand.NewPCG(rnd.Uint64(), 2))
	add := func(s observe.Selector, opts ...observe.Option) {
		l := &ledger{
			t: t, name: fmt.Sprintf("%s %d", s, len(ledgers)), state: map[cache.Key]string{},
			keep: func(*corev1.ConfigMap) bool { return true },
		}
		if s == "even" {
			l.keep = even
		}
		l.known = observe.Known[corev1.ConfigMap](h, s)
		own := rand.New(rand.NewPCG(seeds.Uint64(), 3))
		var mu sync.Mutex
		chance := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return own.IntN(n)
		}
		ledgers = append(ledgers, l)
		leaves := -1
		if own.IntN(4) == 0 {
			leaves = own.IntN(40)
		}
		var self atomic.Pointer[observe.Observer]
		self.Store(observe.On(h, s, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if chance(4) == 0 {
				time.Sleep(time.Duration(chance(3000)) * time.Millisecond)
			}
			switch chance(12) {
			case 0:
				return errors.New("once more")
			case 1:
				panic("once more")
			}
			l.take(e)
			mu.Lock()
			leaves--
			leave := leaves == 0
			mu.Unlock()
			if o := self.Load(); leave && o != nil {
				l.leave()
				o.Remove()
			}
			return nil
		}, append(opts, observe.OnFailure(observe.Retry, 100))...))
		observers[l] = self.Load()
	}
	kinds := []func(){
		func() { add(Maps) },
		func() { add(Maps, observe.Async(3)) },
		func() { add("even") },
		func() { add("even", observe.Async(1)) },
		func() { add("copies", observe.Async(2)) },
		func() { add("copies") },
		func() { add(Maps, observe.Via(3, pool)) },
		func() { add("copies", observe.Via(1, pool), observe.Every(10*time.Minute)) },
	}
	for _, kind := range kinds {
		kind()
	}
	h.start()
	for value := range 300 {
		switch key := fmt.Sprintf("%c/%d", 'a'+rnd.IntN(2), rnd.IntN(4)); rnd.IntN(20) {
		case 0, 1, 2, 3, 4:
			_ = h.server.Remove(configMaps, key[:1], key[2:]) // the object may be absent
		case 5:
			h.server.DropConnections()
		case 6:
			h.server.Compact(h.server.Revision())
			h.server.DropConnections()
		case 7:
			kinds[rnd.IntN(len(kinds))]()
		case 8:
			l := ledgers[rnd.IntN(len(ledgers))]
			l.leave()
			observers[l].Remove()
		case 9, 10:
			time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		default:
			h.put(key, fmt.Sprint(value))
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	objects, err := h.server.Objects(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range slices.DeleteFunc(ledgers, (*ledger).hasLeft) {
		want := map[cache.Key]string{}
		for _, o := range objects {
			c := configMap(o.GetNamespace(), o.GetName(), "v", o.Object["data"].(map[string]any)["v"].(string))
			if l.keep(c) {
				want[cache.Key{Namespace: c.Namespace, Name: c.Name}] = c.Data["v"]
			}
		}
		l.mu.Lock()
		if d := cmp.Diff(want, l.state); d != "" {
			t.Errorf("%s does not end at the state of the server (-want +got):\n%s", l.name, d)
		}
		if l.synced != 1 {
			t.Errorf("%s: synchronized %d times", l.name, l.synced)
		}
		l.mu.Unlock()
	}
}
