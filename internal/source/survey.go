package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/paging"
	"github.com/fairlead-io/fairlead/shard"
)

// Surveyed is the additional interface of a Sink that compares its content with the server. An idle watch may confirm
// no version for a minute or longer.
type Surveyed interface {
	// Survey is called when the scope starts, before its first list or watch. The Surveyor fails after the scope has
	// ended.
	Survey(*Surveyor)
}

// Surveyor reads the content of a scope from the server, consistently. It does not affect the watch and uses the
// Limiter. It is safe for concurrent use.
type Surveyor struct {
	cfg      *Config
	open     openFunc
	selected func() (Selectors, *shard.Set) // the current content of the scope

	mu      sync.Mutex
	ended   bool
	cancels map[*context.CancelFunc]struct{}
	running sync.WaitGroup
}

var errNotRunning = errors.New("it is no longer watched")

// Page sizes of a survey. The first page is small, because it often has all objects, or only its version is needed.
const (
	surveyFirst = 500
	surveyPage  = 5000
)

// List lists the metadata of all objects of the scope. It calls object for each, with a header that is valid only
// during the call. After each page it calls page with the version of the list, which all pages share, and whether more
// pages follow. List ends with the first error of page.
func (v *Surveyor) List(ctx context.Context, object func(*Header), page func(version string, more bool) error) error {
	q := query{limit: surveyFirst, metadata: true}
	if v.cfg.PageSize < 0 {
		q.limit = 0
	}
	version := ""
	var check paging.Check
	return v.do(ctx, q, func(ctx context.Context, q query) error {
		for {
			m, err := readObjects(ctx, v.open, q, v.cfg.ListProgressTimeout, func(o *Object) {
				check.Object(o.Header.Namespace, o.Header.Name)
				if !isElsewhere(q.slots, o, false) {
					object(&o.Header)
				}
			})
			if err != nil {
				return err
			}
			if version == "" {
				version = m.version
			}
			if err := page(version, m.next != ""); err != nil || m.next == "" {
				return err
			}
			if err := check.Next(m.next); err != nil {
				return &ProtocolError{What: err.Error()}
			}
			q.limit, q.next = surveyPage, m.next
		}
	})
}

// Get reads one object and calls object with it, if it exists and the scope selects it. It returns the version of the
// read.
func (v *Surveyor) Get(
	ctx context.Context, namespace, name string, object func(*Object) error,
) (version string, err error) {
	err = v.do(ctx, query{namespace: namespace, name: name}, func(ctx context.Context, q query) error {
		var failed error
		m, err := readObjects(ctx, v.open, q, v.cfg.ListProgressTimeout, func(o *Object) {
			// Servers that ignore the field selector return other objects.
			if string(o.Header.Name) == name && string(o.Header.Namespace) == namespace &&
				!isElsewhere(q.slots, o, false) {
				failed = object(o)
			}
		})
		version = m.version
		return errors.Join(err, failed)
	})
	return version, err
}

// do runs requests with the current selectors of the scope, and cancels them when the scope ends.
func (v *Surveyor) do(ctx context.Context, q query, run func(context.Context, query) error) error {
	sel, slots := v.selected()
	if q.name != "" {
		sel.Field = joinFields(sel.Field, "metadata.name="+q.name)
	}
	q.beside, q.selectors, q.slots = true, &sel, slots
	if slots != nil && slots.IsEmpty() {
		return fmt.Errorf("cannot ask for %s: %w", v.cfg.Resource.GroupResource(), errNoSlots)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v.mu.Lock()
	if v.ended {
		v.mu.Unlock()
		return fmt.Errorf("cannot ask for %s: %w", v.cfg.Resource.GroupResource(), errNotRunning)
	}
	v.cancels[&cancel] = struct{}{}
	v.running.Add(1)
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		delete(v.cancels, &cancel)
		v.mu.Unlock()
		v.running.Done()
	}()
	return run(ctx, q)
}

func joinFields(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

// readObjects sends one request and calls object for each object of the response. patience is the longest time without
// a byte.
func readObjects(
	ctx context.Context, open openFunc, q query, patience time.Duration, object func(*Object),
) (listMeta, error) {
	st, err := open(ctx, q)
	if err != nil {
		return listMeta{}, err
	}
	defer st.close()
	var end listMeta
	err = st.readList(ctx, patience, func(e *event) (bool, error) {
		switch e.kind {
		case evListEnd:
			end = *e.list
		case evObject:
			object(&e.obj)
		}
		return false, nil
	})
	if err != nil {
		return listMeta{}, err
	}
	return end, nil
}

// close cancels the running requests and waits for them.
func (v *Surveyor) close() {
	v.mu.Lock()
	v.ended = true
	for cancel := range v.cancels {
		(*cancel)()
	}
	v.mu.Unlock()
	v.running.Wait()
}

// newSurveyor returns a Surveyor that runs until close.
func newSurveyor(cfg *Config, open openFunc, selected func() (Selectors, *shard.Set)) *Surveyor {
	return &Surveyor{cfg: cfg, open: open, selected: selected, cancels: map[*context.CancelFunc]struct{}{}}
}
