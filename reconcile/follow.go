package reconcile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/client"
)

// Follow makes the controller reconcile primary when an object of another kind changes. The source is for primary only,
// such as a namespace or a Secret that it names. It remains until primary is gone or [Controller.Unfollow] is called.
//
// A reconciler calls Follow each time, with the current references of its object. name identifies the source among
// those of primary. A new declaration under a name replaces the previous one; an equal one changes nothing. Existing
// objects lead to no reconciliation if another watch of the kind has already listed them: read them after Follow.
//
// The reconciler needs the [Controller] that [New] returned, in a field that is set before the host runs.
func Follow[S any, PS client.ObjectOf[S]](c *Controller, primary Key, name string, opts ...WatchOption) error {
	w := newWatch[S, PS](nil, append(opts[:len(opts):len(opts)], Named(name)))
	err := errNotRunning
	if c != nil {
		err = c.follows.add(primary, name, w)
	}
	if err != nil {
		return fmt.Errorf("cannot follow %s for %s: %w", name, primary, err)
	}
	return nil
}

// follows are the watches that [Follow] added, by primary and name. They are open watches of the intake, whose lock is
// never taken under that of follows. Methods are safe for concurrent use.
type follows struct {
	intake    *intake
	scheme    func() *runtime.Scheme
	everySlot bool // replicas share the objects; the followed objects may be in any namespace

	mu  sync.Mutex // guards all, and follow.open
	all map[Key]map[string]*follow
}

// follow is a watch that [Follow] added for one primary.
type follow struct {
	primary Key
	open    *openWatch            // nil until it is open
	watch   atomic.Pointer[watch] // the latest declaration
}

// rules returns the latest declaration.
func (f *follow) rules() *watch { return f.watch.Load() }

// add opens a watch for primary, or replaces the functions of an equal one.
func (fs *follows) add(primary Key, name string, w *watch) error {
	w.everySlot = fs.everySlot
	before := fs.get(primary, name)
	if !fs.intake.running() {
		return errNotRunning
	}
	if err := errors.Join(w.check(), w.resolve(fs.scheme())); err != nil {
		return err
	}
	if before != nil {
		if same, err := fs.continues(before, w); same || err != nil {
			return err
		}
	}
	f := &follow{primary: primary}
	f.watch.Store(w)
	fs.put(name, f)
	if before != nil {
		fs.close(before)
	}
	s, err := fs.intake.open(w, f)
	if err != nil {
		fs.remove(primary, name)
		return err
	}
	if !fs.opened(name, f, s) {
		fs.intake.closeOne(s)
	}
	return nil
}

func (fs *follows) get(primary Key, name string) *follow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.all[primary][name]
}

func (fs *follows) put(name string, f *follow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[f.primary] == nil {
		if fs.all == nil {
			fs.all = map[Key]map[string]*follow{}
		}
		fs.all[f.primary] = map[string]*follow{}
	}
	fs.all[f.primary][name] = f
}

// opened records the open watch of f. It returns false if f was removed meanwhile.
func (fs *follows) opened(name string, f *follow, s *openWatch) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[f.primary][name] != f {
		return false
	}
	f.open = s
	return true
}

// continues reports whether w declares the same source as f. If so, f uses the functions of w from now on. A source
// that is still being opened counts as the same.
func (fs *follows) continues(f *follow, w *watch) (bool, error) {
	fs.mu.Lock()
	s := f.open
	fs.mu.Unlock()
	if s == nil {
		return true, nil
	}
	same, err := fs.intake.reads(s, w)
	if same {
		f.watch.Store(w)
	}
	return same, err
}

// remove closes the watch of a name, if there is one.
func (fs *follows) remove(primary Key, name string) {
	fs.mu.Lock()
	f := fs.all[primary][name]
	delete(fs.all[primary], name)
	if len(fs.all[primary]) == 0 {
		delete(fs.all, primary)
	}
	fs.mu.Unlock()
	if f != nil {
		fs.close(f)
	}
}

// removeAll closes all watches of a primary.
func (fs *follows) removeAll(primary Key) {
	fs.mu.Lock()
	all := fs.all[primary]
	delete(fs.all, primary)
	fs.mu.Unlock()
	for _, f := range all {
		fs.close(f)
	}
}

// close closes a watch that was removed. If it is still being opened, add closes it.
func (fs *follows) close(f *follow) {
	fs.mu.Lock()
	s := f.open
	fs.mu.Unlock()
	if s != nil {
		fs.intake.closeOne(s)
	}
}

// clear forgets all watches, after the intake has closed them. An earlier call would let add keep a watch that the
// intake closes right after.
func (fs *follows) clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	clear(fs.all)
}
