package executor

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/shard"
)

var epoch = coursetest.Epoch()

// world is an API server with an ordered log of writes. Replicas have seen the log up to some point each.
type world struct {
	log []v1alpha1.Operation // the state after each write; its version is the index plus 1
	now map[string]*v1alpha1.Operation
}

// write makes a new version of an operation, if seen is its current version.
func (w *world) write(op *v1alpha1.Operation, seen string) bool {
	if present := w.now[op.Name]; present != nil && present.ResourceVersion != seen {
		return false
	}
	op = op.DeepCopy()
	op.ResourceVersion = strconv.Itoa(len(w.log) + 1)
	w.log = append(w.log, *op)
	w.now[op.Name] = op
	return true
}

// at returns an operation as of a version, nil if it did not exist.
func (w *world) at(name, version string) (was *v1alpha1.Operation) {
	n, err := strconv.Atoi(version)
	if err != nil {
		panic(err)
	}
	for i := range w.log[:n] {
		if w.log[i].Name == name {
			was = &w.log[i]
		}
	}
	return was
}

// clock returns the time of the next write. Some minutes pass in the course of a test.
func (w *world) clock() time.Time {
	return epoch.Add(time.Duration(len(w.log)) * course.ClocksApart / 6)
}

// replica is the part of an executor that decides about turns.
type replica struct {
	*locks
	runs  *runs
	fresh *freshness
	sink  source.Sink
	seen  int               // writes of the world that it has seen
	begun int               // writes in the log when it became the leader
	wrote map[string]string // its own last write, by name
}

func newReplica(fatal func(...any)) *replica {
	st := store.New(store.Options{
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation), Namespaced: true,
	})
	if err := indexLocked(st); err != nil {
		fatal(err)
	}
	r := &replica{locks: &locks{store: st}, sink: st.Sink("ns")}
	r.begin(0)
	all := r.sink.Replace()
	all.Commit(source.Commit{Version: "0"})
	return r
}

// begin starts a process that has seen so many writes.
func (r *replica) begin(writes int) {
	r.runs, r.wrote, r.begun = newRuns(nil), make(map[string]string), writes
	r.fresh = newFreshness(shard.Layout{Slots: 1})
	r.fresh.gain(shard.Layout{Slots: 1}.All())
	r.locks.accepted, r.locks.fresh, r.locks.lines = r.runs, r.fresh.in, &lines{}
}

// run returns the run of an operation, as follow makes it.
func (r *replica) run(op *v1alpha1.Operation) *run {
	key := store.Key{Namespace: "ns", Name: op.Name}
	current := r.runs.find(key)
	if current == nil {
		current = &run{key: key, work: &work{}}
		r.runs.add(current, func() bool { return true })
	}
	current.draft().adopt(op)
	if current.recorded {
		current.accepted = nil
	} else {
		if course.Ordinary(op) && r.runs.accept(current, op) {
			r.lines.wake(key)
		}
	}
	return current
}

// turn decides about the first call of a run that has made none.
func (r *replica) turn(current *run, op *v1alpha1.Operation) (t course.Turn) {
	if current.alone = false; current.entered {
		return course.Turn{}
	}
	t, current.alone = r.locks.turn(&current.news, op, current.recorded)
	return t
}

// see applies the next write.
func (r *replica) see(w *world, fatal func(...any)) {
	op := w.log[r.seen]
	r.seen++
	op.APIVersion, op.Kind = v1alpha1.GroupVersion.String(), v1alpha1.KindOperation
	raw, err := json.Marshal(&op)
	if err != nil {
		fatal(err)
	}
	o := &source.Object{Raw: raw}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		fatal(err)
	}
	if err := r.sink.Apply(source.Added, o); err != nil {
		fatal(err)
	}
}

func resourceOf(i int) v1alpha1.ResourceReference {
	return v1alpha1.ResourceReference{ResourceType: "app", ResourceID: strconv.Itoa(i)}
}

func locking(own int, locked ...int) *v1alpha1.Operation {
	op := coursetest.Requested(func(op *v1alpha1.Operation) {
		op.Namespace, op.Spec.WebhookIDs = "ns", []string{"a"}
		op.Spec.ResourceReference = resourceOf(own)
		op.Name = v1alpha1.OperationName(op.Spec.ResourceType, op.Spec.ResourceID)
	})
	for _, i := range locked {
		op.Spec.RelatedResources = append(op.Spec.RelatedResources,
			v1alpha1.RelatedResource{ResourceReference: resourceOf(i), Lock: true})
	}
	return op
}

// TestExclusiveOperationsTakeTurns lets replicas with views of any age work on operations that lock each other's
// resources. Meanwhile others write labels, and new requests replace ended ones. Either both replicas work at a time
// and record every call first, or one of them leads. The lead changes now and then, and the new leader does not know
// unrecorded calls. No two operations that exclude each other are between their first call and their end. All
// operations end (O4).
func TestExclusiveOperationsTakeTurns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fatal := func(args ...any) { t.Fatal(args...) }
		const resources, rounds = 4, 2
		w := &world{now: make(map[string]*v1alpha1.Operation)}
		replicas := []*replica{newReplica(fatal), newReplica(fatal)}
		both, leader := rapid.Bool().Draw(t, "both"), 0
		names := make([]string, resources)
		requests := make([]int, resources)
		called := make(map[string]bool) // by operation: its unrecorded call
		request := func(i int) {
			op := locking(i, rapid.SliceOfN(rapid.IntRange(0, resources-1), 0, 2).Draw(t, "locks")...)
			op.CreationTimestamp.Time = w.clock()
			seen := ""
			if before := w.now[op.Name]; before != nil {
				op.Status, op.CreationTimestamp, seen = before.Status, before.CreationTimestamp, before.ResourceVersion
			}
			requests[i]++
			op.Spec.OperationID = fmt.Sprint("op-", i, "-", requests[i])
			names[i] = op.Name
			w.write(op, seen)
		}
		holders := func() {
			working := func(op *v1alpha1.Operation) bool { return inside(op) || called[op.EffectiveID()] && !op.Terminal() }
			for _, a := range w.now {
				for _, b := range w.now {
					if a.Name < b.Name && working(a) && working(b) && excludes(a, b) {
						t.Fatalf("%s and %s are both at work:\n%+v\n%+v", a.EffectiveID(), b.EffectiveID(), a, b)
					}
				}
			}
		}
		// work does a replica's step for one operation.
		work := func(r *replica, name string) {
			known, ok := r.store.Get(store.Key{Namespace: "ns", Name: name})
			if !ok || resourceversion.Older(known.Version(), r.wrote[name]) {
				return
			}
			shared, err := store.As[v1alpha1.Operation](known)
			if err != nil {
				t.Fatal(err)
			}
			op := shared.DeepCopy()
			confirmed := r.seen >= r.begun
			if confirmed {
				r.fresh.report("ns", map[int]int{0: 1}, true)
			}
			if rapid.IntRange(0, 4).Draw(t, "reload") == 0 { // as after a conflict
				op, confirmed = w.now[name].DeepCopy(), true
			}
			if op.Terminal() {
				return
			}
			seen, current := op.ResourceVersion, r.run(op)
			write := func() {
				if w.write(op, seen) {
					r.wrote[name] = w.now[name].ResourceVersion
				}
			}
			course.Begin(w.clock(), r.placeOf)(op)
			if current.entered {
				course.Attempt(op, record.Target{ID: "a"}, course.FirstAttempt(op), 0, w.clock())(op)
				switch rapid.IntRange(0, 2).Draw(t, "over") {
				case 0:
					course.Finish(op, v1alpha1.PhaseSuccess, w.clock())(op)
					write()
				case 1: // longer than half a second
					write()
				}
				return
			}
			switch turn := r.turn(current, op); {
			case turn.Unknown:
				return
			case turn.Doubt != nil:
				d := turn.Doubt
				if !both && rapid.IntRange(0, 2).Draw(t, "expired") == 0 {
					r.learn(d, nil, !course.ComesLater(d, w.now[d.Lock.Name]))
				} else if was := w.at(d.Op.Name, d.At); was != nil && was.EffectiveID() == d.Op.EffectiveID() {
					r.learn(d, was, true)
				} else {
					r.learn(d, nil, false)
				}
				return
			case turn.Behind != nil:
				r.lines.join(&current.news, turn.Behind.Key)
				course.Await(op.EffectiveID(), v1alpha1.ReasonWaitingForLock, "waiting", epoch)(op)
				write()
			case turn.Still:
			case !both && current.alone && confirmed && rapid.Bool().Draw(t, "unrecorded"):
				if now := w.now[name]; now.Terminal() || now.EffectiveID() != op.EffectiveID() {
					t.Fatalf("%s is called after its end", op.EffectiveID())
				}
				current.unrecorded, called[op.EffectiveID()] = w.clock(), true
				holders()
			default:
				course.Attempt(op, record.Target{ID: "a"}, course.FirstAttempt(op), 0, w.clock())(op)
				write()
				holders()
			}
		}
		for i := range resources {
			request(i)
		}
		for range 60 {
			r := replicas[rapid.IntRange(0, 1).Draw(t, "replica")]
			switch what := rapid.IntRange(0, 11).Draw(t, "what"); what / 2 {
			case 0: // another writer sets a label
				if op := w.now[names[rapid.IntRange(0, resources-1).Draw(t, "operation")]]; op != nil {
					w.write(op, op.ResourceVersion)
				}
			case 1, 2:
				if r.seen < len(w.log) {
					r.see(w, fatal)
				}
			case 3:
				if i := rapid.IntRange(0, resources-1).Draw(t, "operation"); w.now[names[i]].Terminal() && requests[i] < rounds {
					request(i)
				}
			default:
				switch {
				case both:
				case what == 11: // the leader dies
					leader = 1 - leader
					r = replicas[leader]
					r.begin(len(w.log))
				default:
					r = replicas[leader]
				}
				work(r, names[rapid.IntRange(0, resources-1).Draw(t, "operation")])
			}
		}
		// Without disturbances, everything ends.
		for range 100 {
			unfinished := false
			for i, r := range replicas {
				for r.seen < len(w.log) {
					r.see(w, fatal)
				}
				if !both && i != leader {
					continue
				}
				for _, name := range names {
					work(r, name)
					unfinished = unfinished || !w.now[name].Terminal()
				}
			}
			if !unfinished {
				return
			}
		}
		t.Fatalf("a deadlock: %+v", w.now)
	})
}

// inside reports whether an operation is past its first attempt and has not ended.
func inside(op *v1alpha1.Operation) bool { return course.Entered(op) && !op.Terminal() }

func excludes(a, b *v1alpha1.Operation) bool {
	wants := func(a, b *v1alpha1.Operation) bool {
		for locked := range a.Locks() {
			if locked == b.Spec.ResourceReference {
				return true
			}
			for other := range b.Locks() {
				if locked == other {
					return true
				}
			}
		}
		return false
	}
	return wants(a, b) || wants(b, a)
}

func TestTurn(t *testing.T) {
	t.Parallel()
	started := func(op *v1alpha1.Operation) *v1alpha1.Operation {
		course.Begin(epoch, coursetest.Version)(op)
		course.Attempt(op, record.Target{ID: "a"}, "try", 0, epoch)(op)
		return op
	}
	ended := func(op *v1alpha1.Operation) *v1alpha1.Operation {
		course.Finish(op, v1alpha1.PhaseSuccess, epoch)(started(op))
		return op
	}
	older := func(op *v1alpha1.Operation) *v1alpha1.Operation {
		started(op).Status.Webhooks = nil
		op.Status.AcceptedVersion = ""
		return op
	}
	tests := map[string]struct {
		reason string
		others []*v1alpha1.Operation // written before op
		op     *v1alpha1.Operation
		blind  int  // number of writes that the replica has not seen
		stale  bool // the store may lack writes of a predecessor
		behind string
		want   course.Turn
	}{
		"Alone": {reason: "No operation is before it.", op: locking(1, 2)},
		"Lock": {
			reason: "Both lock the same resource.", others: []*v1alpha1.Operation{locking(1, 3)},
			op: locking(2, 3), behind: "app-1",
		},
		"Own": {
			reason: "The other one locks its resource.", others: []*v1alpha1.Operation{locking(1, 2)},
			op: locking(2), behind: "app-1",
		},
		"About": {
			reason: "It locks the resource of the other one.", others: []*v1alpha1.Operation{locking(1)},
			op: locking(2, 1), behind: "app-1",
		},
		"Last": {
			reason: "Of several it comes after the last.",
			others: []*v1alpha1.Operation{locking(1, 3), locking(4, 3)}, op: locking(2, 3), behind: "app-4",
		},
		"Itself": {reason: "Its own resource is no obstacle.", op: locking(1, 1)},
		"Disjoint": {
			reason: "Other locks do not matter.", others: []*v1alpha1.Operation{locking(1, 3), ended(locking(5, 4))},
			op: locking(2, 4),
		},
		"Started": {
			reason: "A working operation comes first.", others: []*v1alpha1.Operation{started(locking(1, 3))},
			op: locking(2, 3), behind: "app-1",
		},
		"Old": {
			reason: "One picked up by an older controller comes first.",
			others: []*v1alpha1.Operation{older(locking(3))}, op: locking(2, 3), behind: "app-3",
		},
		"Blind": {
			reason: "There may be an operation that is not known yet.", others: []*v1alpha1.Operation{locking(1, 3)},
			op: locking(2, 3), blind: 1, want: course.Turn{Unknown: true},
		},
		"Stale": {
			reason: "A predecessor may have started one first that was accepted later.",
			op:     locking(1, 2), stale: true, want: course.Turn{Unknown: true},
		},
		"NoLock": {reason: "Without a lock it waits for no operation.", op: locking(1), stale: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := &world{now: make(map[string]*v1alpha1.Operation)}, newReplica(t.Fatal)
			if !tc.stale {
				r.fresh.report("", map[int]int{0: 1}, true)
			}
			for _, op := range append(tc.others, tc.op) {
				w.write(op, "")
			}
			for range len(w.log) - tc.blind {
				r.see(w, t.Fatal)
			}
			for _, op := range tc.others {
				r.run(w.now[op.Name].DeepCopy())
			}
			op := w.now[tc.op.Name].DeepCopy()
			current := r.run(op)
			course.Begin(epoch.Add(time.Second), r.placeOf)(op)
			got := r.turn(current, op)
			if d := got.Doubt; d != nil {
				r.learn(d, nil, w.at(d.Op.Name, d.At) != nil)
				got = r.turn(current, op)
			}
			if tc.behind != "" {
				if got.Behind == nil || got.Behind.Key.Name != tc.behind {
					t.Errorf("%s got %+v, want it behind %s", tc.reason, got, tc.behind)
				}
			} else if got != tc.want {
				t.Errorf("%s got %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestLongLine: many operations lock the same resources. Finding one that comes before examines a few, and the first
// operation examines each of the others once.
func TestLongLine(t *testing.T) {
	t.Parallel()
	const all = 1_000
	w := &world{now: make(map[string]*v1alpha1.Operation)}
	r := newReplica(t.Fatal)
	r.fresh.report("", map[int]int{0: 1}, true)
	for i := range all {
		op := locking(i, all+1, all+2, all+3, all+4)
		course.Begin(time.Unix(0, 0), coursetest.Version)(op)
		op.Status.AcceptedVersion = strconv.Itoa(i + 1)
		w.write(op, "")
		r.see(w, t.Fatal)
	}
	now := r.store.Snapshot()
	for _, i := range []int{0, all / 2, all - 1} {
		op := &w.log[i]
		s := r.lastBefore(op, r.run(op).recorded, now)
		most := 2 * searchEnough
		if i == 0 {
			most = all
		}
		if len(s.examined) > most || (s.last == nil) != (i == 0) || s.last != nil && !course.ComesBefore(s.last.Op, op) {
			t.Errorf("operation %d: %d were examined, and found %v", i, len(s.examined), s.last)
		}
	}
}
