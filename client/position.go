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

// ErrNotKept is matched when the server dropped a position from the saved status. The schema of the kind lacks the
// field, and the server prunes unknown fields.
var ErrNotKept = errors.New("the server does not store the position; check that its field is part of the schema")

// StatusPosition keeps the position of one durable fiber in the status of the object that the fiber works on. The next
// instance of the operator finds it there. StatusPosition is a [flow.Positions] for one key: make one for each fiber.
//
//	pos := client.NewStatusPosition(c, domain, func(d *v1.Domain) **flow.Position { return &d.Status.Flow })
//	bringUp.Start(ctx, engine, packet, flow.StartOptions{Key: key, Positions: pos, Generation: domain.Generation})
//
// A save also writes the other changes of the status that the steps register with [StatusPosition.Set]. It is one patch
// of the status with optimistic locking, and the next read sees it. In the schema of the kind, the field must be an
// object that preserves unknown fields, or the type that controller-gen generates for [flow.Position].
//
// The end of a failed or cancelled fiber is saved although the fiber may no longer write. The next fiber of its key
// starts only after that. StatusPosition is safe for concurrent use.
type StatusPosition[T any, PT ObjectOf[T]] struct {
	c    *Client
	base PT // names the object

	version string // resourceVersion of the object that the caller has read
	at      func(PT) **flow.Position

	mu    sync.Mutex
	sets  []func(PT) error // changes for the next save
	known []*flow.Position // loaded (nil if none) or tried to save since; empty after a successful save
}

// NewStatusPosition returns the position of a fiber that works on obj. It uses the name and, if set, the uid and the
// resourceVersion of obj. It never writes to another object of that name and does not use a cache that is older than
// obj. at returns the location of the position in the status.
func NewStatusPosition[T any, PT ObjectOf[T]](c *Client, obj PT, at func(PT) **flow.Position) *StatusPosition[T, PT] {
	base := PT(new(T))
	if obj == nil {
		return &StatusPosition[T, PT]{c: c, base: base, at: at} // every use fails, because base has no name
	}
	base.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	base.SetNamespace(obj.GetNamespace())
	base.SetName(obj.GetName())
	base.SetUID(obj.GetUID())
	return &StatusPosition[T, PT]{c: c, base: base, version: obj.GetResourceVersion(), at: at}
}

// Set registers fn to change the status in the next save, after earlier functions. Only changes of the status count. fn
// may run several times, each time on a fresh copy. A fiber that completes without parking saves no position and must
// call Flush.
func (s *StatusPosition[T, PT]) Set(fn func(obj PT) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = append(s.sets, fn)
}

// Flush writes the changes registered with Set since the last save, if any.
func (s *StatusPosition[T, PT]) Flush(ctx context.Context) error {
	_, err := s.write(ctx, s.c, nil)
	return err
}

// Load implements [flow.Positions]. It ignores the position of another object of this name. If the cache has no such
// object, Load asks the server.
func (s *StatusPosition[T, PT]) Load(ctx context.Context, _ string) (flow.Position, bool, error) {
	obj := s.object()
	err := s.c.reader().fresh(ctx, KeyOf(s.base), obj, s.base.GetUID(), s.version)
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

// Save implements [flow.Positions]. Its errors are those of [ModifyStatus], ErrNotKept and [flow.ErrOvertaken].
//
// The position may have been loaded from a cache that is behind a save of another process. The first save detects that
// without a further request, because it carries the version of the object that it changes. It does not replace a
// position that the fiber does not know, unless the fiber has completed.
func (s *StatusPosition[T, PT]) Save(ctx context.Context, _ string, p flow.Position) error {
	c := s.c
	if p.Ended {
		ctx, c = afterEnd(ctx, c)
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
		c.reader().refresh(ctx, s.base) // for the fiber that replaces this one and loads the position
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

// knows reports whether a stored position is from this fiber, or the one that it loaded. After its first save, the
// cache shows all saves of earlier fibers, so knows returns true.
func (s *StatusPosition[T, PT]) knows(there *flow.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return there == nil || len(s.known) == 0 ||
		slices.ContainsFunc(s.known, func(p *flow.Position) bool {
			return p != nil && reflect.DeepEqual(stored(p), stored(there))
		})
}

// maxTried bounds the number of failed saves that are remembered.
const maxTried = 16

// tried records the result of a save. A failed save may still have been made.
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

// missing returns the names of the fields of a position that were not kept unchanged.
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

// stored returns a position as it is stored, independent of the encoding of its checkpoint. It drops nulls, because a
// null in a merge patch means an absent member.
func stored(p *flow.Position) map[string]any {
	var out map[string]any
	if raw, err := json.Marshal(p); err == nil {
		_ = json.Unmarshal(raw, &out) // cannot fail: raw is valid JSON
	}
	delete(out, "trace") // an optional hint; the schema of the kind may lack the field
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

// Clear implements [flow.Positions]. It succeeds if the object is gone.
func (s *StatusPosition[T, PT]) Clear(ctx context.Context, _ string) error {
	_, err := s.write(ctx, s.c, func(obj PT) error { *s.at(obj) = nil; return nil })
	if apierrors.IsNotFound(err) || errors.Is(err, ErrReplaced) {
		return nil
	}
	return err
}

// write sends one patch of the status with change and the registered changes. If it fails, the registered changes
// remain for the next write.
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
