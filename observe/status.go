package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/source"
)

// working names the observers, including removed ones, and the functions of sources that have not returned.
func working(d *declarations) string {
	var names []string
	for _, o := range slices.Concat(d.observers, d.leaving) {
		if o.working() {
			names = append(names, o.describe())
		}
	}
	for o := range d.roots() {
		if o.opening {
			names = append(names, fmt.Sprintf("source %q (%s)", o.selector, o.place))
		}
	}
	return strings.Join(names, ", ")
}

// unsynced names the observers that have not handled their initial objects, with the reasons. It requires the lock of
// the registry.
func unsynced(d *declarations, observers []*Observer) []string {
	var names []string
	for _, o := range observers {
		if o.synced.happened() || o.gone.happened() && o.failure == nil {
			continue
		}
		name := o.describe()
		if why := obstacle(d, o); why != "" {
			name += ": " + why
		}
		names = append(names, name)
	}
	return names
}

// describe names an observer in messages.
func (o *Observer) describe() string {
	if o.opts.name != "" {
		return fmt.Sprintf("%s (%s, %s)", o.selector, o.opts.name, o.place)
	}
	return fmt.Sprintf("%s (%s)", o.selector, o.place)
}

// obstacle returns the reason why an observer is not synced. It requires the lock.
func obstacle(d *declarations, o *Observer) string {
	switch {
	case o.failure != nil:
		return "it was stopped: " + o.failure.Error()
	case o.root == nil:
		if err := checkObserver(d, o); err != nil {
			return err.Error()
		}
		return "it has not been started"
	case o.root.err != nil:
		return o.root.err.Error()
	case o.root.feed == nil:
		return "its source is being started"
	}
	for _, st := range o.root.feed.store.Statuses() {
		if st.Phase == source.Degraded || !st.Synced {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", st.Namespace, st.Phase, st.Reason, st.Message))
		}
	}
	return "its initial objects are being handled"
}
