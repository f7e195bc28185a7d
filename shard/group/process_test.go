package group

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
)

// world is a server and the processes that use it, on a fake clock.
type world struct {
	t       *testing.T
	server  *apiserver.Server
	reason  string                             // of what is played, for messages
	cover   coverage                           // of the processes that start
	load    func() (map[string]int, shard.Set) // of the processes that start; nil: those in objects
	unready func() (shard.Set, string)         // of the processes that start: see Group.Ready
	logs    bytes.Buffer
	logMu   sync.Mutex

	mu      sync.Mutex
	objects map[string]int // by namespace; nil: their number is not known
	all     []*process
	wire    sync.WaitGroup // what is on its way though nobody waits for it
}

func newWorld(t *testing.T) *world {
	return &world{t: t, server: testbed.Server(t, apiserver.Options{})}
}

// close ends all processes, as they are.
func (w *world) close() {
	for _, p := range w.processes() {
		p.set(func() { p.faults = faults{} })
		p.resume()
		p.stop()
	}
	for _, p := range w.processes() {
		<-p.ended
	}
	w.wire.Wait()
	w.server.Close()
	if w.t.Failed() {
		w.t.Log(w.logged())
	}
}

func (w *world) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Write implements io.Writer, for the log of all processes.
func (w *world) Write(b []byte) (int, error) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	if bytes.Contains(b, []byte("source state changed")) {
		return len(b), nil
	}
	return w.logs.Write(b)
}

// logged returns what all processes have logged.
func (w *world) logged() string {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	return w.logs.String()
}

// forgetLog empties what logged returns.
func (w *world) forgetLog() {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	w.logs.Reset()
}

// faults are what becomes of the requests of a process.
type faults struct {
	cut    bool          // nothing arrives
	mute   bool          // all arrives, no answer does
	noisy  bool          // a fifth of the requests or answers is lost
	slow   bool          // requests take seconds, and may arrive after all though they were given up
	answer time.Duration // each request takes so long, on its way or on the way back
	blind  bool          // it can write, and read nothing
	deaf   bool          // it has no watch and no list, but all else
	trap   bool          // it is paused when a write has been carried out and not answered
	killed bool          // the process is gone
}

// process is one member: with a clock of its own, which may stand still with all else of it.
type process struct {
	w     *world
	name  string
	g     *Group
	stop  context.CancelFunc
	ended chan struct{}
	err   error // of Run

	offset time.Duration // of its clock

	mu     sync.Mutex
	rnd    *rand.Rand
	faults faults
	paused chan struct{} // closed when it goes on; nil: it is not paused
	woken  []func()      // timers that have run out meanwhile
	drain  time.Duration // how long work on a slot takes to end, at most
	active map[int]bool  // slots that its participant works on
	held   shard.Set     // the same, with their boundaries
	gained int
	lacks  bool // it is not ready for any slot
}

// start begins a process.
func (w *world) start(name string, rnd *rand.Rand, o Options, more ...Participant) *process {
	w.t.Helper()
	p := &process{w: w, name: name, rnd: rnd, ended: make(chan struct{}), active: map[int]bool{}}
	p.offset = time.Duration(rnd.IntN(121)-60) * time.Second
	p.startWith(disturb.Config(w.server.Config(), p.roundTrip), o, more...)
	return p
}

func (p *process) startWith(cfg *rest.Config, o Options, more ...Participant) {
	w := p.w
	w.t.Helper()
	if o.Name == "" {
		o.Namespace, o.Name, o.Role = "a", "gateways", "reconcile"
	}
	o.Member, o.Program = p.name, w.cover.Program
	if o.Layout == (shard.Layout{}) {
		o.Layout.Slots = 8
	}
	o.Logger = slog.New(slog.NewTextHandler(w, nil))
	g, err := newGroup(cfg, o, leasing.Clock{Now: p.now, After: p.after})
	if err != nil {
		w.t.Fatal(err)
	}
	p.g = g
	objects := w.load
	if objects == nil {
		objects = p.count
	}
	g.Cover(w.cover.Namespaces, w.cover.Kinds, objects)
	if g.Ready(w.unready); w.unready == nil {
		g.Ready(p.unready)
	}
	for _, participant := range append([]Participant{p}, more...) {
		g.Add(participant)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	p.stop = stop
	w.mu.Lock()
	w.all = append(w.all, p)
	w.mu.Unlock()
	go func() {
		defer close(p.ended)
		p.err = g.Run(ctx)
	}()
}

// unready is the function of Group.Ready.
func (p *process) unready() (slots shard.Set, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lacks {
		return slots, ""
	}
	return p.held, "nothing can be listed"
}

func (p *process) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

func (p *process) now() time.Time { return time.Now().Add(p.offset) }

// after is a timer that does not run out while the process is paused.
func (p *process) after(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.paused != nil {
			p.woken = append(p.woken, func() { c <- p.now() })
			return
		}
		c <- p.now()
	})
	return c
}

// pause stops a process as SIGSTOP does.
func (p *process) pause() {
	p.set(func() {
		if p.paused == nil {
			p.paused = make(chan struct{})
		}
	})
}

// resume lets it go on: all that it has waited for comes at once, in any order.
func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		return
	}
	close(p.paused)
	p.paused = nil
	p.rnd.Shuffle(len(p.woken), func(i, j int) { p.woken[i], p.woken[j] = p.woken[j], p.woken[i] })
	for _, fn := range p.woken {
		fn()
	}
	p.woken = nil
}

// gate waits while the process is paused.
func (p *process) gate() {
	for {
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

// works says whether the process could send something for a slot now.
func (p *process) works(slot int) bool {
	p.mu.Lock()
	stopped := p.paused != nil || p.faults.killed
	p.mu.Unlock()
	return !stopped && p.g.Fence(slot) == nil
}

func (p *process) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	p.gate()
	p.mu.Lock()
	f, fault, wait, back := p.faults, p.rnd.IntN(10), time.Duration(0), time.Duration(0)
	if f.slow {
		wait = time.Duration(p.rnd.IntN(5000)) * time.Millisecond
	}
	if f.answer > 0 {
		wait = time.Duration(p.rnd.Int64N(int64(f.answer)))
		back = f.answer - wait
	}
	p.mu.Unlock()
	watch := r.URL.Query().Get("watch") != ""
	_, many := r.URL.Query()["labelSelector"]
	write := r.Method == http.MethodPut || r.Method == http.MethodPatch
	switch {
	case f.deaf && many || f.killed || f.cut || f.noisy && fault == 0 || f.blind && !write:
		return nil, disturb.ErrLost
	case wait+back > 0 && !watch:
		return p.late(r, next, wait, back)
	}
	if !watch {
		r = r.WithContext(context.WithoutCancel(r.Context())) // what was sent is sent, whoever was paused meanwhile
	}
	answer, err := next.RoundTrip(r)
	if f.trap && r.Method == http.MethodPatch {
		p.pause()
	}
	p.gate()
	if err != nil {
		return nil, err
	}
	answer.Body = body{answer.Body, p, watch}
	if f.mute || f.noisy && fault == 1 && !watch {
		_, err = io.Copy(io.Discard, answer.Body)
		return nil, errors.Join(disturb.ErrLost, err, answer.Body.Close())
	}
	return answer, nil
}

// late sends a request a while later, also if it was given up. The answer arrives another while after that.
func (p *process) late(r *http.Request, next http.RoundTripper, wait, back time.Duration) (*http.Response, error) {
	type result struct {
		answer *http.Response
		err    error
	}
	got := make(chan result, 1)
	sent := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil { // it is closed when the request is given up
		all, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		sent.Body = io.NopCloser(bytes.NewReader(all))
	}
	p.w.wire.Go(func() {
		<-time.After(wait)
		answer, err := next.RoundTrip(sent)
		if err == nil {
			var all []byte
			all, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			answer.Body = io.NopCloser(bytes.NewReader(all))
		}
		<-time.After(back)
		got <- result{answer, err}
	})
	select {
	case res := <-got:
		p.gate()
		return res.answer, res.err
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// body is an answer that is not read while the process is paused, or cut off.
type body struct {
	io.ReadCloser
	p     *process
	watch bool
}

func (b body) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.p.gate()
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if f := b.p.faults; f.cut || f.mute || f.killed || (f.blind || f.deaf) && b.watch {
		return 0, disturb.ErrLost
	}
	return n, err
}

// Gain implements Participant.
func (p *process) Gain(_ context.Context, slots shard.Set) error {
	for slot := range slots.Slots() {
		for _, other := range p.w.processes() {
			if other != p && p.works(slot) && other.works(slot) {
				p.w.t.Errorf("%s: %s gains slot %d, which %s holds", p.w.reason, p.name, slot, other.name)
			}
		}
		p.set(func() {
			if p.active[slot] {
				p.w.t.Errorf("%s: %s gains slot %d twice", p.w.reason, p.name, slot)
			}
			p.active[slot] = true
			p.held = p.held.Union(slots.Both(slots.Layout().Set(slot)))
			p.gained++
		})
	}
	return nil
}

// Lose implements Participant: work on each slot ends after its own delay, or with ctx.
func (p *process) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	type work struct {
		slot int
		ends time.Duration
	}
	var all []work
	p.set(func() {
		for slot := range slots.Slots() {
			w := work{slot: slot}
			if p.drain > 0 {
				w.ends = time.Duration(p.rnd.Int64N(int64(p.drain)))
			}
			all = append(all, w)
		}
	})
	slices.SortFunc(all, func(a, b work) int { return cmp.Compare(a.ends, b.ends) })
	ended := time.Duration(0)
	for _, w := range all {
		slot, wait := w.slot, w.ends-ended
		ended = w.ends
		if ctx.Err() == nil && wait > 0 {
			select {
			case <-p.after(wait):
			case <-ctx.Done():
				if c := context.Cause(ctx); !errors.Is(c, ErrMoved) && !errors.Is(c, ErrLost) {
					p.w.t.Errorf("%s: the cause is %v", p.w.reason, c)
				}
				p.gate()
			}
		}
		if ctx.Err() == nil && p.w.server != nil {
			p.mu.Lock()
			stopped := p.paused != nil || p.faults.killed
			p.mu.Unlock()
			if err := p.g.Fence(slot); err != nil && ctx.Err() == nil && !stopped && !errors.Is(err, ErrLost) {
				select {
				case <-ctx.Done(): // a member that loses its Lease closes the fence first
				case <-p.after(time.Millisecond):
					p.w.t.Errorf("%s: %s may not end its work on slot %d: %v", p.w.reason, p.name, slot, err)
				}
			}
		}
		p.set(func() {
			delete(p.active, slot)
			p.held = p.held.Minus(slots.Layout().Set(slot))
		})
		quiet(slots.Layout().Set(slot))
	}
}

// count returns the objects in the slots of its participant.
func (p *process) count() (map[string]int, shard.Set) {
	p.w.mu.Lock()
	all := p.w.objects
	p.w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if all == nil {
		return nil, shard.Set{}
	}
	held, own := p.held, map[string]int{}
	if held.IsEmpty() {
		held = equalRanges(p.g.layout).Set()
	}
	for namespace, n := range all {
		if held.Has(namespace, "") {
			own[namespace] = n
		}
	}
	return own, held
}

// worksOn says whether the process could send something for an object in a namespace now.
func (p *process) worksOn(namespace string) bool {
	p.mu.Lock()
	stopped := p.paused != nil || p.faults.killed
	p.mu.Unlock()
	return !stopped && p.g.FenceOf(namespace, "") == nil
}

// holders returns the names of those who could send something for each slot, and fails if there are two for one.
func (w *world) holders() [][]string {
	synctest.Wait() // or a slot might move while the processes are asked one after the other
	var out [][]string
	var layout shard.Layout
	working := ""
	for _, p := range w.processes() {
		for slot := range p.g.Layout().Len() {
			for len(out) <= slot {
				out = append(out, nil)
			}
			if !p.works(slot) {
				continue
			}
			out[slot] = append(out[slot], p.name)
			if working != "" && !sameDivision(layout, p.g.Layout()) {
				w.t.Errorf("%s: %s and %s work by two layouts", w.reason, working, p.name)
			}
			working, layout = p.name, p.g.Layout()
		}
	}
	for slot, names := range out {
		if len(names) > 1 {
			w.t.Errorf("%s: slot %d is held by %v", w.reason, slot, names)
		}
	}
	w.mu.Lock()
	objects := w.objects
	w.mu.Unlock()
	looked := 0
	for namespace := range objects { // in random order
		if looked++; looked > 8 {
			break
		}
		var names []string
		for _, p := range w.processes() {
			if p.worksOn(namespace) {
				names = append(names, p.name)
			}
		}
		if len(names) > 1 {
			w.t.Errorf("%s: %v work on %s", w.reason, names, namespace)
		}
	}
	return out
}

// whole says whether every slot of a layout is held.
func (w *world) whole(n int) bool {
	held := 0
	for _, names := range w.holders() {
		if len(names) > 0 {
			held++
		}
	}
	return held == n
}

// play lets time pass, and looks at each instant.
func (w *world) play(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !w.t.Failed(); {
		testbed.Settle(min(50*time.Millisecond, time.Until(end)))
		w.holders()
	}
}

// within lets time pass until every slot is held, and fails if that takes too long.
func (w *world) within(d time.Duration, n int, what string) {
	w.t.Helper()
	for end := time.Now().Add(d); !w.whole(n) && !w.t.Failed(); testbed.Settle(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Errorf("%s: %v after %s not every slot is held: %v", w.reason, d, what, w.holders())
			for _, p := range w.processes() {
				w.t.Log(p.name, fmt.Sprintf("%+v", p.g.Status()))
			}
			return
		}
	}
}
