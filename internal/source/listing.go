package source

import (
	"fmt"

	"github.com/fairlead-io/fairlead/shard"
)

// listOf selects the content of a list: everything that is held, or the gained slots.
type listOf struct {
	consistent bool
	gained     *shard.Set
	reason     string // for Commit
}

// stager begins replacements in the sink and says which objects they get.
type stager struct {
	sink       Sink
	kinds      *kindCheck
	filter     *slotFilter
	quarantine *quarantine
}

// begin begins a replacement in the sink: of the gained slots, or of everything. confirms is the result of the first
// list if this one confirms it.
func (s *stager) begin(of listOf, confirms *confirmation) *listing {
	l := &listing{stager: s, listOf: of, confirms: confirms}
	if of.gained != nil {
		l.staged = s.sink.(Sharded).Gain(*of.gained)
	} else {
		l.staged = s.sink.Replace()
	}
	return l
}

// listing is a replacement in progress and the facts collected about it.
type listing struct {
	*stager
	listOf
	staged    Replacement
	only      *snapshot     // namespaces listed of the gained slots; nil: all of them
	count     int           // objects listed, including those of slots that are not held
	promised  int           // expected number of objects by the first page; 0 if only some slots are listed
	gap       bool          // one of several pages was empty
	nameless  int           // unreadable items without a name
	version   string        // of the list; "": not known yet
	confirms  *confirmation // nil: this is the first list
	committed bool
}

// add stages an object of a list.
func (l *listing) add(e *event) {
	l.count++
	l.put(e)
}

// change stages a change among the initial events of a watch.
func (l *listing) change(e *event) {
	switch e.change {
	case Deleted:
		l.count--
		dropped := l.filter.dropsListed(e, l.gained)
		if e.deletionNeedsNoContent(); e.err == nil && !dropped {
			l.staged.Remove(&e.obj)
		}
		return
	case Added:
		l.count++
	}
	l.put(e)
}

func (l *listing) put(e *event) {
	if l.filter.dropsListed(e, l.gained) {
		return
	}
	err := e.err
	if err == nil {
		err = l.kinds.object(&e.obj)
	}
	if err == nil {
		err = l.staged.Put(&e.obj)
	}
	if err != nil {
		if len(e.obj.Header.Name) == 0 {
			l.nameless++
		}
		l.quarantine.add(&e.obj, err)
	}
}

// endPage records the end of a page. first is the number of objects before it. paged reports whether there are other
// pages.
func (l *listing) endPage(m *listMeta, first int, paged bool) {
	if l.version == "" {
		l.version = m.version // later pages belong to the same snapshot
		if l.gained == nil && l.filter.holdsAll() {
			l.promised = l.count + int(m.remaining)
		}
	}
	l.gap = l.gap || l.count == first && paged
}

// commit applies the list.
func (l *listing) commit(c Commit) {
	l.committed = true
	l.staged.Commit(c)
}

// close aborts the replacement unless it was committed.
func (l *listing) close() {
	if !l.committed {
		l.staged.Abort()
	}
}

// confirmation is the error of a list that must be confirmed by a second one because it would delete too many objects.
type confirmation struct{ missing, known, listed int }

func (c *confirmation) Error() string {
	return fmt.Sprintf("list of %d objects lacks %d of %d known ones: %v", c.listed, c.missing, c.known, ErrImplausible)
}

func (c *confirmation) Unwrap() error { return ErrImplausible }

// doubt returns a confirmation if the list needs a second one before it is committed, else nil. estimates reports that
// the server's remaining item counts are estimates, as the API allows. They are not compared then.
func (l *listing) doubt(cfg *Config, estimates bool) (c *confirmation, areEstimates bool) {
	missing, known := l.staged.Missing()
	guard := cfg.BulkDeleteGuard
	empty := l.count == 0 && known > 0 && !cfg.TrustEmptyList
	many := guard > 0 && missing > guard
	// With a selector the server reports no remaining item count, and an empty last page may be correct. The case is
	// rare enough to list again, even if no known object is missing: there may be more objects.
	short := l.count < l.promised && !estimates || l.gap
	hidden := l.nameless > 0 && missing > 0 // a missing object may be an unreadable one
	if !empty && !many && !short && !hidden {
		return nil, estimates
	}
	// A list with an empty page may lack objects that the first list had. If it is the shorter one, it confirms
	// nothing.
	shorter := (empty || short) && l.confirms != nil && l.count < l.confirms.listed
	if c := l.confirms; c != nil && missing <= c.missing+max(guard, 0) && !shorter {
		return nil, estimates || l.count < l.promised
	}
	return &confirmation{missing: missing, known: known, listed: l.count}, estimates
}
