package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/source"
)

// rangeSink is a source.Sink that stores only the ranges of the objects of a resource. The last known ranges stay in
// effect when updates fail. One goroutine of the source uses it.
type rangeSink struct {
	read    func(raw []byte) ([]string, error)
	changed func(all []netip.Prefix)     // receives the ranges of all objects
	done    func(err error)              // called when the ranges are known, or with the reason why they are not
	refused func(name string, err error) // called for an object that cannot be read
	known   map[string][]netip.Prefix    // by name
	version string
	open    *rangeReplacement // nil: none
}

func (s *rangeSink) parse(o *source.Object) ([]netip.Prefix, error) {
	texts, err := s.read(o.Raw)
	if err != nil {
		return nil, fmt.Errorf("cannot read the ranges: %w", err)
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read the ranges: %w", err)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

func (s *rangeSink) publish() {
	var all []netip.Prefix
	for _, prefixes := range s.known {
		all = append(all, prefixes...)
	}
	s.changed(all)
}

// Known implements source.Sink.
func (s *rangeSink) Known() source.Known {
	return source.Known{Version: s.version, Count: len(s.known)}
}

// Apply implements source.Sink.
func (s *rangeSink) Apply(change source.ChangeType, o *source.Object) error {
	name := string(o.Header.Name)
	before := s.known[name]
	if change == source.Deleted {
		delete(s.known, name)
	} else {
		prefixes, err := s.parse(o)
		if err != nil {
			return err
		}
		s.known[name] = prefixes
	}
	s.version = string(o.Header.ResourceVersion)
	if !slices.Equal(before, s.known[name]) { // nodes change often, but rarely their ranges
		s.publish()
	}
	return nil
}

// Bookmark implements source.Sink.
func (s *rangeSink) Bookmark(version string) { s.version = version }

// Quarantine implements source.Sink.
func (s *rangeSink) Quarantine(q source.Quarantined) {
	if s.open != nil {
		s.open.staged[q.Name] = s.known[q.Name]
	}
	s.refused(q.Name, q.Err)
}

// Report implements source.Sink.
func (s *rangeSink) Report(status source.Status) {
	switch {
	case status.Synced:
		s.done(nil)
	case status.Phase == source.Degraded &&
		(status.Reason == source.ReasonForbidden || status.Reason == source.ReasonNotFound):
		s.done(errors.New(status.Message))
	}
}

// Replace implements source.Sink.
func (s *rangeSink) Replace() source.Replacement {
	s.open = &rangeReplacement{sink: s, staged: map[string][]netip.Prefix{}}
	return s.open
}

// rangeReplacement collects the content of a list.
type rangeReplacement struct {
	sink   *rangeSink
	staged map[string][]netip.Prefix
}

// Put implements source.Replacement.
func (r *rangeReplacement) Put(o *source.Object) error {
	prefixes, err := r.sink.parse(o)
	if err == nil {
		r.staged[string(o.Header.Name)] = prefixes
	}
	return err
}

// Remove implements source.Replacement.
func (r *rangeReplacement) Remove(o *source.Object) { delete(r.staged, string(o.Header.Name)) }

// Missing implements source.Replacement.
func (r *rangeReplacement) Missing() (missing, known int) {
	for name := range r.sink.known {
		if _, ok := r.staged[name]; !ok {
			missing++
		}
	}
	return missing, len(r.sink.known)
}

// Commit implements source.Replacement.
func (r *rangeReplacement) Commit(c source.Commit) {
	r.sink.known, r.sink.version, r.sink.open = r.staged, c.Version, nil
	r.sink.publish()
}

// Abort implements source.Replacement.
func (r *rangeReplacement) Abort() { r.sink.open = nil }
