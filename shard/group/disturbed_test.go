package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/seed"
	election "github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/shard"
)

var leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// schedule is a random run of a group.
type schedule struct {
	*world
	rnd     *rand.Rand
	options Options
	n       int // processes begun
	live    []*process
	peace   bool     // see atPeace
	lacked  bool     // a member was not ready
	old     []string // records as they once were
}

// TestDisturbed plays random schedules: members join, leave, are killed, paused, cut off, lose requests and answers,
// while the objects of the group are deleted and edited by hand, and a process of the release before elects a leader.
// Two members never send requests for one slot or one object, or by two layouts, or beside the leader. In some
// schedules the boundaries of the slots follow the objects, and members of the former release take part. Some members
// are not ready for their slots for a while. At the end nothing fails any more. Then members hold all slots in equal
// shares, and each move of a slot is within its bound.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	seed.Play(t, 12, func(t *testing.T, s uint64) {
		synctest.Test(t, func(t *testing.T) { disturbed(t, s) })
	})
}

func disturbed(t *testing.T, s uint64) {
	w := newWorld(t)
	w.reason = fmt.Sprintf("FAIRLEAD_SEED=%d", s)
	defer w.close()
	c := &schedule{world: w, rnd: seed.Rand(s, "schedule")}
	c.options.Layout.Slots = 8
	if c.rnd.IntN(2) == 0 {
		w.cover = coverage{Program: "p", Kinds: []string{"a"}}
	}
	if c.rnd.IntN(3) > 0 {
		c.options.balance = time.Duration(5+c.rnd.IntN(60)) * time.Second
		c.churn()
	}
	var elected *elder
	if c.rnd.IntN(3) == 0 {
		c.options.Leader = "leader"
		elected = newElder(t, w)
		defer elected.close()
	}
	for range 1 + c.rnd.IntN(4) {
		c.join()
	}
	for range 6 + c.rnd.IntN(10) {
		if t.Failed() {
			return
		}
		c.disturb()
		if elected != nil && c.rnd.IntN(4) == 0 {
			elected.toggle()
		}
		for range c.rnd.IntN(60) {
			w.play(200 * time.Millisecond)
			elected.check()
		}
	}
	elected.close()
	for _, p := range c.live {
		p.set(func() { p.faults, p.drain, p.lacks = faults{killed: p.faults.killed}, 0, false })
		p.resume()
	}
	c.peace = true
	c.keepLayout()
	if len(c.live) == 0 {
		c.join()
	}
	w.play(90 * time.Second) // requests on their way arrive, and leases run out
	if w.within(0, c.options.Layout.Slots, "90 seconds of peace"); t.Failed() {
		return
	}
	c.old = nil // a record of another layout stops the members
	for range 6 {
		if c.options.balance > 0 && c.rnd.IntN(2) == 0 {
			c.churn()
		}
		c.atPeace()
	}
	if c.options.balance > 0 { // the objects stay, and so do the boundaries at last
		c.play(2 * c.options.balance)
	}
	if c.lacked { // members that were not ready count like the others again
		c.play(retryInterval + readyTimeout)
	}
	c.atRest()
}

// churn replaces the objects, so that boundaries may change.
func (c *schedule) churn() {
	format := []string{"team-%d", "tenant-%03d", "%d-customer"}[c.rnd.IntN(3)]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects = numbered(format, 10+c.rnd.IntN(100))
}

// join begins a process.
func (c *schedule) join() *process {
	c.n++
	o := c.options
	if o.balance > 0 && !c.peace && c.rnd.IntN(6) == 0 {
		o.format = 2 // of the former release
	}
	p := c.start(fmt.Sprint("p", c.n), seed.Rand(c.rnd.Uint64()), o)
	drain := time.Duration(c.rnd.IntN(2)) * time.Duration(c.rnd.IntN(12000)) * time.Millisecond
	if c.peace && c.options.balance > 0 {
		drain = 0 // a step of the boundaries would last as long
	}
	p.set(func() { p.drain = drain })
	c.live = append(c.live, p)
	return p
}

func (c *schedule) one() *process {
	if len(c.live) == 0 {
		return nil
	}
	return c.live[c.rnd.IntN(len(c.live))]
}

// remove forgets a process that has left or was killed.
func (c *schedule) remove(p *process) {
	for i := range c.live {
		if c.live[i] == p {
			c.live = append(c.live[:i:i], c.live[i+1:]...)
			return
		}
	}
}

func (c *schedule) kill(p *process) {
	p.set(func() { p.faults.killed = true })
	p.stop()
	c.remove(p)
}

// disturb has something go wrong, or right again.
func (c *schedule) disturb() {
	p := c.one()
	if p == nil || len(c.live) < 5 && c.rnd.IntN(5) == 0 {
		c.join()
		return
	}
	switch c.rnd.IntN(26) {
	case 24, 25:
		c.lacked = true
		p.set(func() { p.lacks = !p.lacks })
	case 0:
		p.stop()
		c.remove(p)
	case 21, 22, 23:
		if c.options.balance > 0 { // and a member does not see how the boundaries change
			c.churn()
			p.set(func() { p.faults.blind = c.rnd.IntN(2) == 0 })
		}
	case 1:
		c.kill(p)
	case 2, 3:
		p.pause()
	case 4, 5:
		p.resume()
	case 6:
		p.set(func() { p.faults.cut = true })
	case 7:
		p.set(func() { p.faults.mute = true })
	case 8:
		p.set(func() { p.faults.noisy = true })
	case 9:
		p.set(func() { p.faults.slow = true })
	case 10, 11:
		for _, p := range c.live {
			p.set(func() { p.faults = faults{} })
		}
	case 12:
		c.edit()
	case 13: // a member's Lease is deleted
		for _, l := range c.leases() {
			if isOfMember(l) {
				_ = c.server.Remove(leaseResource, "a", l.GetName())
				break
			}
		}
	case 17: // the present release covers other kinds, or states what it covers
		c.cover = coverage{Program: "p", Kinds: []string{"a", fmt.Sprint(c.rnd.IntN(3))}}
		c.join()
	case 18: // it can write, and read nothing
		p.set(func() { p.faults.blind = true })
	case 19, 20: // the group is deleted with the Lease of a member, and a process starts soon
		p.set(func() { p.faults.cut, p.faults.mute = c.rnd.IntN(2) == 0, c.rnd.IntN(2) == 0 })
		if len(c.leases()) < 4 { // the Lease of another member is left as a trace
			return
		}
		_ = c.server.Remove(leaseResource, "a", "gateways")
		_ = c.server.Remove(leaseResource, "a", leaseName("gateways", p.g.Status().Member))
		c.play(time.Duration(c.rnd.IntN(8000)) * time.Millisecond)
		if !slices.ContainsFunc(c.leases(), isOfMember) { // the other member has deleted its Lease itself
			c.play(10 * time.Second)
		}
		c.join()
	case 16: // all of the group is deleted. A process that starts before its members notice cannot know that there is one.
		c.play(time.Second)
		for _, l := range c.leases() {
			if l.GetName() != "leader" {
				_ = c.server.Remove(leaseResource, "a", l.GetName())
			}
		}
		c.play(10 * time.Second)
	case 14: // the whole server is away
		rule := c.server.On(apiserver.Match{}, apiserver.Drop())
		c.play(time.Duration(c.rnd.IntN(90)) * time.Second)
		rule.Off()
	case 15:
		if c.options.Leader == "" { // another layout is rolled out
			c.options.Layout.Slots = 24 - c.options.Layout.Slots // 8 or 16
		}
		c.join()
	}
}

// isOfMember reports whether a Lease is that of a member of the group.
func isOfMember(l *unstructured.Unstructured) bool {
	return l.GetName() != "gateways" && l.GetName() != "leader"
}

func (w *world) leases() []*unstructured.Unstructured {
	all, err := w.server.Objects(leaseResource)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// edit changes the object of the group by hand.
func (c *schedule) edit() {
	u, err := c.server.Object(leaseResource, "a", "gateways")
	if err != nil {
		return
	}
	a := u.GetAnnotations()
	c.old = append(c.old, a[recordAnnotation])
	switch c.rnd.IntN(7) {
	case 6: // a member's Lease names slots of others, and the group is deleted
		for _, l := range c.leases() {
			a := l.GetAnnotations()
			if h, _, ok := holdingsOf(&lease{ObjectMeta: metav1.ObjectMeta{Annotations: a}}); ok && c.rnd.IntN(2) == 0 {
				h.Slots = shard.Layout{Slots: h.Of}.All().String()
				if c.rnd.IntN(2) == 0 {
					h.Bounds = nil
				}
				a[holdingsAnnotation] = h.encode()
				l.SetAnnotations(a)
				_, _ = c.server.Put(l)
			}
		}
		_ = c.server.Remove(leaseResource, "a", "gateways")
		return
	case 0:
		_ = c.server.Remove(leaseResource, "a", "gateways")
		if c.rnd.IntN(2) == 0 { // and is made again from a copy
			if c.rnd.IntN(2) == 0 {
				a[recordAnnotation] = c.old[c.rnd.IntN(len(c.old))]
				if r, err := decode(a[recordAnnotation]); err == nil && c.rnd.IntN(2) == 0 { // the present holders, or former ones
					r.founded = ""
					a[recordAnnotation] = r.encode()
				}
				u.SetAnnotations(a)
			}
			u.SetUID("")
			u.SetResourceVersion("")
			_, _ = c.server.Put(u)
		}
		return
	case 1:
		a[recordAnnotation] = "{"
	case 2: // somebody gives all slots to the first member
		if r, err := decode(a[recordAnnotation]); err == nil && len(r.members) > 0 {
			for i := range r.slots {
				r.slots[i].holder = r.members[0].ID
			}
			sum := r.sum
			text := r.encode()
			a[recordAnnotation] = strings.Replace(text, r.sum, sum, 1)
		}
	case 3: // or puts back a copy
		a[recordAnnotation] = c.old[c.rnd.IntN(len(c.old))]
	case 4:
		delete(a, roleAnnotation)
		if len(c.live) < 5 {
			delete(a, recordAnnotation)
			a[roleAnnotation] = "reconcile"
		} else {
			a[roleAnnotation] = "reconcile"
		}
	case 5:
		u.SetLabels(nil)
	}
	u.SetAnnotations(a)
	_, _ = c.server.Put(u)
}

// keepLayout ends the processes of another layout, of other kinds or of another release than the present ones.
func (c *schedule) keepLayout() {
	for _, p := range append([]*process(nil), c.live...) {
		if p.g.layout.Slots != c.options.Layout.Slots || p.g.opt.format < recordFormat ||
			!slices.Equal(p.g.coverage.Kinds, c.cover.Kinds) {
			p.stop()
			c.remove(p)
		}
	}
}

// atPeace does one thing while all else is well, and holds the group to its bounds.
func (c *schedule) atPeace() {
	if c.t.Failed() {
		return
	}
	n := c.options.Layout.Slots
	switch p := c.one(); {
	case c.rnd.IntN(3) == 0:
		c.play(30 * time.Second) // moves end, and a crash is noticed
		c.awaitRest()
		if c.rnd.IntN(2) == 0 || c.options.Leader != "" { // an old record may say that another process leads
			_ = c.server.Remove(leaseResource, "a", "gateways")
		} else {
			c.edit()
		}
		for end := time.Now().Add(25 * time.Second); time.Now().Before(end) && !c.t.Failed(); {
			c.play(50 * time.Millisecond)
			c.within(time.Second, n, "an edit or a deletion") // a planned move takes a moment
		}
	case len(c.live) < 2 || c.rnd.IntN(3) == 0:
		c.join()
		c.within(2*time.Second, n, "a join")
	case c.rnd.IntN(2) == 0:
		p.stop()
		c.remove(p)
		c.within(time.Second, n, "a leave")
	default:
		c.kill(p)
		c.within(20*time.Second, n, "a crash")
		c.play(20 * time.Second) // until then, slots of a member that leaves may get the killed one as their target
	}
	c.play(time.Duration(c.rnd.IntN(5000)) * time.Millisecond)
	c.within(20*time.Second, n, "a while")
}

// awaitRest plays until no slot has moved for five seconds, or for a minute. No Lease names a slot that is on its way
// from one member to another. So if the group is deleted, the slot waits for the duration of a Lease.
func (c *schedule) awaitRest() {
	n, rest := c.options.Layout.Slots, 0
	for end := time.Now().Add(time.Minute); rest < 50 && time.Now().Before(end); rest++ {
		c.play(100 * time.Millisecond)
		if s := c.live[0].g.Status(); !c.whole(n) || len(s.Group.Moving) > 0 || s.Group.Changing {
			rest = 0
		}
	}
}

// atRest looks at what is there when nothing happens.
func (c *schedule) atRest() {
	c.play(30 * time.Second)
	if c.t.Failed() {
		return
	}
	least, most := c.options.Layout.Slots, 0
	for _, p := range c.live {
		held := p.g.Held().Len()
		least, most = min(least, held), max(most, held)
		p.mu.Lock()
		if len(p.active) != held {
			c.t.Errorf("%s: %s holds %d slots and works on %d", c.reason, p.name, held, len(p.active))
		}
		p.mu.Unlock()
		if s := p.g.Status(); s.Err != nil || len(s.Group.Members) != len(c.live) || len(s.Group.Moving) > 0 {
			c.t.Errorf("%s: of %s: %+v", c.reason, p.name, s)
		}
	}
	if most-least > 1 {
		c.t.Errorf("%s: some hold %d slots, some %d", c.reason, least, most)
	}
	want := len(c.live) + 1
	if _, err := c.server.Object(leaseResource, "a", "leader"); err == nil {
		want++
	}
	if all := c.leases(); len(all) != want {
		c.t.Errorf("%s: %d Leases, want %d", c.reason, len(all), want)
	}
	before := len(c.server.Log().Requests)
	c.play(15 * time.Second)
	sent, bound := len(c.server.Log().Requests)-before, len(c.live)*11+12 // renewals, watches that begin again; the leader
	if sent > bound {
		c.t.Errorf("%s: %d requests of %d members in 15 seconds", c.reason, sent, len(c.live))
	}
	for _, r := range c.server.Log().Requests {
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Resource != "leases" {
			c.t.Errorf("%s: a %s of %s", c.reason, r.Verb, r.Resource)
		}
	}
}

// elder is a process of before: it elects a leader.
type elder struct {
	w     *world
	stop  func()
	lease *election.Lease
	n     int
}

func newElder(_ *testing.T, w *world) *elder { return &elder{w: w} }

// toggle begins or ends the process.
func (e *elder) toggle() {
	if e.stop != nil {
		e.close()
		return
	}
	e.n++
	l, err := election.New(e.w.server.Config(), election.Options{
		Namespace: "a", Name: "leader", Identity: fmt.Sprint("elder", e.n),
	})
	if err != nil {
		e.w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(e.w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Run(ctx)
	}()
	e.lease = l
	e.stop = func() { cancel(); <-ended }
}

// check looks whether both lead.
func (e *elder) check() {
	if e == nil || e.stop == nil || e.lease.Fence(e.w.t.Context()) != nil {
		return
	}
	for _, names := range e.w.holders() {
		if len(names) > 0 {
			e.w.t.Errorf("%s: %v hold slots while another process leads", e.w.reason, names)
			return
		}
	}
}

func (e *elder) close() {
	if e != nil && e.stop != nil {
		e.stop()
		e.stop = nil
	}
}
