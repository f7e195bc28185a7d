package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/flow"
)

// ErrNotKept is matched when the server dropped a position from the status it was saved in: the schema of the kind
// lacks the field, and the server prunes what the schema does not name.
var ErrNotKept = errors.New("the server does not keep the position: is its field part of the schema?")

// StatusPosition keeps the position of one durable fiber in the status of the object that the fiber works on, so that
// the operator that starts next finds it there. It is a [flow.Positions] of one key: make one for each fiber.
//
//	pos := client.NewStatusPosition(c, domain, func(d *v1.Domain) **flow.Position { return &d.Status.Flow })
//	bringUp.Start(ctx, engine, packet, flow.StartOptions{Key: key, Positions: pos, Generation: domain.Generation})
//
// What else the steps have to say in the status goes with it ([StatusPosition.Set]): a save is one patch of the status,
// with optimistic locking, which the next read sees at once. In the schema of the kind, the field is an object that
// preserves unknown fields, or what controller-gen makes of [flow.Position].
//
// The end of a fiber that failed or was cancelled is saved although the fiber may not write any more; its key's
// successor begins only after that. It is safe for concurrent use.
type StatusPosition[T any, PT ObjectOf[T]] struct {
	c    *Client
	base PT // names the object

	version string // that the caller was shown
	at      func(PT) **flow.Position

	mu    sync.Mutex
	sets  []func(PT) error // what goes with the next save
	known []*flow.Position // what the fiber has loaded, nil among it, and tried to save since; none when it has saved
}

// NewStatusPosition returns the position of a fiber that works on obj, of which the name and, if they are known, uid
// and version are used: another object of that name is never written to, and a cache that is older than obj is not
// believed. at says where in the status the position is.
func NewStatusPosition[T any, PT ObjectOf[T]](c *Client, obj PT, at func(PT) **flow.Position) *StatusPosition[T, PT] {
	base := PT(new(T))
	if obj == nil {
		return &StatusPosition[T, PT]{c: c, base: base, at: at} // which has no name, as is told when it is used
	}
	base.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	base.SetNamespace(obj.GetNamespace())
	base.SetName(obj.GetName())
	base.SetUID(obj.GetUID())
	return &StatusPosition[T, PT]{c: c, base: base, version: obj.GetResourceVersion(), at: at}
}

// Set has fn change the status in the next save, after earlier ones. Only changes of the status count, and fn may run
// several times, on a fresh copy each. A fiber that completes without having parked saves nothing: it calls Flush.
func (s *StatusPosition[T, PT]) Set(fn func(obj PT) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = append(s.sets, fn)
}

// Flush writes what was Set since the last save, if anything.
func (s *StatusPosition[T, PT]) Flush(ctx context.Context) error {
	_, err := s.write(ctx, s.c, nil)
	return err
}

// Load implements [flow.Positions]. The position of another object of this name does not count. That there is no such
// object only the server can say.
func (s *StatusPosition[T, PT]) Load(ctx context.Context, _ string) (flow.Position, bool, error) {
	obj := s.object()
	err := s.c.getFresh(ctx, KeyOf(s.base), obj, s.base.GetUID(), s.version)
	if apierrors.IsNotFound(err) {
		return flow.Position{}, false, nil
	}
	if err != nil {
		return flow.Position{}, false, err
	}
	if s.base.GetUID() != "" && s.base.GetUID() != obj.GetUID() {
		return flow.Position{}, false, nil
	}
	p := *s.at(obj)
	s.mu.Lock()
	s.known = []*flow.Position{p.DeepCopy()}
	s.mu.Unlock()
	if p == nil {
		return flow.Position{}, false, nil
	}
	return *p.DeepCopy(), true, nil
}

// Save implements [flow.Positions]. Errors: those of [ModifyStatus], ErrNotKept, [flow.ErrOvertaken].
//
// The cache that the position was loaded from may have been behind what another process has saved. The first save finds
// that out, at no cost: it holds for the version of the object that it changes, and does not replace a position that
// the fiber does not know of, unless the fiber has completed.
func (s *StatusPosition[T, PT]) Save(ctx context.Context, _ string, p flow.Position) error {
	c := s.c
	if p.Ended {
		ctx, c = c.afterEnd(ctx)
	}
	completed := p.Ended && p.Err == ""
	obj, err := s.write(ctx, c, func(obj PT) error {
		if there := *s.at(obj); !completed && !s.knows(there) {
			return flow.ErrOvertaken
		}
		*s.at(obj) = p.DeepCopy()
		return nil
	})
	if errors.Is(err, flow.ErrOvertaken) {
		c.bring(ctx, s.base) // the fiber that takes its place loads what is there
	}
	s.tried(&p, err == nil)
	if err != nil {
		return err
	}
	kept := *s.at(obj)
	if kept == nil {
		return fmt.Errorf("cannot keep the position of %s: %w", KeyOf(s.base), ErrNotKept)
	}
	if lost := missing(&p, kept); len(lost) > 0 {
		return fmt.Errorf("cannot keep %s of the position of %s: %w", strings.Join(lost, ", "), KeyOf(s.base), ErrNotKept)
	}
	return nil
}

// knows says whether a position that is stored is one of this fiber, or what it has begun with. When it has saved, the
// cache shows all that the fibers before it have.
func (s *StatusPosition[T, PT]) knows(there *flow.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return there == nil || len(s.known) == 0 ||
		slices.ContainsFunc(s.known, func(p *flow.Position) bool {
			return p != nil && reflect.DeepEqual(stored(p), stored(there))
		})
}

// maxTried bounds what is remembered of saves that have failed.
const maxTried = 16

// tried notes what became of a save. One that has failed may be there all the same.
func (s *StatusPosition[T, PT]) tried(p *flow.Position, saved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case saved:
		s.known = nil
	case len(s.known) > maxTried:
		s.known = append(s.known[:1:1], s.known[2:]...)
		fallthrough
	case len(s.known) > 0:
		s.known = append(s.known, p.DeepCopy())
	}
}

// missing names the fields of a position that are not kept as they are.
func missing(p, kept *flow.Position) []string {
	have := stored(kept)
	var names []string
	for name, value := range stored(p) {
		if !reflect.DeepEqual(value, have[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// stored is a position as it is stored, in whatever way its checkpoint is written: a merge patch says of a member that
// is null that it is absent.
func stored(p *flow.Position) map[string]any {
	var out map[string]any
	if raw, err := json.Marshal(p); err == nil {
		_ = json.Unmarshal(raw, &out) // which has just been made
	}
	delete(out, "trace") // a hint, for which the schema of the kind may have no field
	dropNulls(out)
	return out
}

func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			}
			dropNulls(member)
		}
	case []any:
		for _, element := range v {
			dropNulls(element)
		}
	}
}

// Clear implements [flow.Positions]. An object that is gone has none.
func (s *StatusPosition[T, PT]) Clear(ctx context.Context, _ string) error {
	_, err := s.write(ctx, s.c, func(obj PT) error { *s.at(obj) = nil; return nil })
	if apierrors.IsNotFound(err) || errors.Is(err, ErrReplaced) {
		return nil
	}
	return err
}

// write sends one patch of the status: change, and what was Set meanwhile. If it fails, that goes with the next one.
func (s *StatusPosition[T, PT]) write(ctx context.Context, c *Client, change func(PT) error) (PT, error) {
	s.mu.Lock()
	sets := s.sets
	s.sets = nil
	s.mu.Unlock()
	obj := s.object()
	if change == nil && len(sets) == 0 {
		return obj, nil
	}
	err := ModifyStatus[T](ctx, c, obj, func(o PT) error {
		for _, set := range sets {
			if err := set(o); err != nil {
				return err
			}
		}
		if change != nil {
			return change(o)
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		s.sets = append(sets[:len(sets):len(sets)], s.sets...)
		s.mu.Unlock()
	}
	return obj, err
}

func (s *StatusPosition[T, PT]) object() PT { return s.base.DeepCopyObject().(PT) }
