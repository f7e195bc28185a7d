package store

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/source"
)

// fieldSelector is the part of a field selector that can be evaluated on any object.
type fieldSelector struct {
	sel       fields.Selector
	undecided bool
}

func parseSelectors(opt Options) (labels.Selector, fieldSelector) {
	f := fieldSelector{undecided: opt.ShardSelector != ""}
	sel, err := labels.Parse(opt.LabelSelector)
	if err != nil {
		sel, f.undecided = labels.Everything(), true
	}
	if f.sel, err = fields.ParseSelector(opt.FieldSelector); err != nil {
		f.sel, f.undecided = fields.Everything(), true
	}
	for _, r := range f.sel.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			f.undecided = true
		}
	}
	return sel, f
}

// Complete says that the store was made without selectors: it holds all objects of its scopes.
func (s *Store) Complete() bool {
	return s.opt.LabelSelector == "" && s.opt.FieldSelector == "" && s.opt.ShardSelector == ""
}

// SetSelectors tells the store that its sources watch with other selectors from now on; see source.Source.SetSelectors.
func (s *Store) SetSelectors(sel source.Selectors) {
	labels, fields := parseSelectors(Options{LabelSelector: sel.Label, FieldSelector: sel.Field, ShardSelector: sel.Shard})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selector, s.fields = labels, fields
}

// inScope says whether the watch's selectors match; decided is false if that cannot be told here. The caller
// holds s.mu.
func (s *Store) inScope(r *Record) (in, decided bool) {
	if s.selector != nil && !s.selector.Matches(r.Labels()) {
		return false, true
	}
	if s.fields.undecided {
		return false, false
	}
	return s.fields.sel.Empty() || s.fields.sel.Matches(fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()}), true
}
