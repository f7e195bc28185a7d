package store

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/source"
)

// scope implements source.Sink: one namespace, or all of them.
type scope struct {
	s  *Store
	ns string

	// Store.mu guards the fields below.
	version    version
	committed  bool
	resuming   bool // the state loaded from disk may not be current yet
	dropped    bool
	status     source.Status
	quarantine map[Key]source.Quarantined
	listing    *replacement
	surveys    surveys
	share      *share // nil: all objects are held
}

// scopes are the scopes of a store by namespace; "" is all namespaces. Store.mu guards them.
type scopes map[string]*scope

// of returns the scope that a namespace belongs to; nil if none is watched.
func (all scopes) of(namespace string) *scope {
	if sc := all[namespace]; sc != nil {
		return sc
	}
	return all[""]
}

// Sink returns the sink that a source fills for one scope: a namespace, or "" for all. Calls for one scope come from
// one goroutine.
func (s *Store) Sink(namespace string) source.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes[namespace]
	if sc == nil {
		sc = &scope{s: s, ns: namespace}
		sc.status.Namespace = namespace
		s.scopes[namespace] = sc
	}
	return sc
}

// count returns the number of objects of the scope in the base. The caller holds s.mu.
func (sc *scope) count() int {
	base := sc.s.root.Load().base
	if sc.ns == "" {
		return base.objects.Len()
	}
	n := 0
	for g := range base.groups.All() {
		if g.shape.ns == sc.ns {
			n += g.ids.Len()
		}
	}
	return n
}

func (sc *scope) check(o *source.Object) error {
	switch {
	case len(o.Header.Name) == 0 || len(o.Header.Name) > 1<<15:
		return fmt.Errorf("cannot keep object %q: %w", o.Header.Name, errNoName)
	case sc.ns != "" && sc.ns != string(o.Header.Namespace):
		return fmt.Errorf("cannot keep object %s/%s in scope %q: %w", o.Header.Namespace, o.Header.Name, sc.ns, errForeignNS)
	}
	return nil
}

// isOld reports whether a change is older than the known state, or repeats it. The caller holds s.mu.
func (sc *scope) isOld(ver version, prior *Record, deleted bool) bool {
	known := sc.version
	if prior != nil {
		known = prior.ver
	}
	if known.isZero() || ver.isZero() {
		return false
	}
	order, ok := ver.compare(known)
	if !ok || sc.s.unordered {
		return prior != nil && !deleted && ver.equal(known)
	}
	if deleted {
		return order < 0
	}
	return order < 0 || order == 0
}

// advance moves the version of the scope; the caller holds s.mu.
func (sc *scope) advance(ver version) {
	if ver.isZero() {
		return
	}
	if ver.text != nil && len(*ver.text) <= 18 {
		sc.s.unordered = true
	}
	if order, ok := ver.compare(sc.version); !ok || order > 0 {
		sc.version = ver
		sc.share.pass(ver)
	}
}

// unquarantine removes an object that can be read now. The caller holds s.mu.
func (sc *scope) unquarantine(k Key) {
	if len(sc.quarantine) > 0 {
		delete(sc.quarantine, k)
	}
}

// applied reports whether the base has seen a version of an object. prior is its record in the base, or nil. The caller
// holds Store.mu.
func (sc *scope) applied(ver version, prior *Record) bool {
	if sc.s.unordered {
		return prior != nil && prior.ver.equal(ver)
	}
	return sc.version.atLeast(ver) || prior != nil && prior.ver.atLeast(ver)
}

// refused reports whether the server refuses to list this scope.
func (sc *scope) refused() bool {
	if sc.status.Phase != source.Degraded {
		return false
	}
	switch sc.status.Reason {
	case source.ReasonUnauthorized, source.ReasonForbidden, source.ReasonNotFound:
		return true
	}
	return false
}

// refusal returns why a scope was never listed, if the server refuses it. The caller holds s.mu.
func (sc *scope) refusal() error {
	if sc.committed || !sc.refused() {
		return nil
	}
	if sc.status.Err != nil {
		return sc.status.Err
	}
	return errors.New(string(sc.status.Reason))
}

// Quarantined returns the objects that could not be read and have not been replaced by readable ones.
func (s *Store) Quarantined() []source.Quarantined {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scopes.quarantined()
}

// quarantined is Store.Quarantined.
func (all scopes) quarantined() (out []source.Quarantined) {
	for _, sc := range all {
		for _, q := range sc.quarantine {
			out = append(out, q)
		}
	}
	return out
}

// Version returns the resource version up to which the store knows all changes: the lowest of all scopes, and "" until
// each scope was listed once.
func (s *Store) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scopes.version()
}

// version is Store.Version.
func (all scopes) version() string {
	var low version
	for _, sc := range all {
		if sc.version.isZero() {
			return ""
		}
		if low.isZero() || low.newer(sc.version) {
			low = sc.version
		}
	}
	return low.String()
}
