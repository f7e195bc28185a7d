package store

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/source"
)

// watchSelector says which objects a watch selects, as far as that can be told of an object alone.
type watchSelector struct {
	labels    labels.Selector
	fields    fields.Selector // those that can be evaluated on any object
	undecided bool            // there is more to it than labels and fields say
}

func parseSelectors(by source.Selectors) watchSelector {
	sel := watchSelector{undecided: by.Shard != ""}
	var err error
	if sel.labels, err = labels.Parse(by.Label); err != nil {
		sel.labels, sel.undecided = labels.Everything(), true
	}
	if sel.fields, err = fields.ParseSelector(by.Field); err != nil {
		sel.fields, sel.undecided = fields.Everything(), true
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			sel.undecided = true
		}
	}
	return sel
}

// selects says whether the watch selects an object; decided is false if that cannot be told here.
func (sel *watchSelector) selects(r *Record) (in, decided bool) {
	switch {
	case !sel.labels.Matches(r.Labels()):
		return false, true
	case sel.undecided:
		return false, false
	}
	return sel.fields.Empty() || sel.fields.Matches(fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()}), true
}
