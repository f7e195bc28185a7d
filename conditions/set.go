package conditions

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of conditions that others know.
const (
	Ready       = "Ready"       // computed from the others
	Reconciling = "Reconciling" // there while the world is being brought to what the object asks for (kstatus)
	Stalled     = "Stalled"     // there while nothing goes on before somebody does something about it (kstatus)
)

// Set is what one reconciliation says of an object. It belongs to one goroutine.
type Set struct {
	generation int64
	said       []metav1.Condition // in the order in which they were said first
	abnormal   map[string]bool
	kept       []string
	now        func() time.Time
}

// Of returns an empty set for the present generation of an object.
func Of(obj metav1.Object) *Set { return &Set{generation: obj.GetGeneration(), now: time.Now} }

// True says that something is as it should be. reason is one word in camel case, for programs; format and args make a
// sentence for people. Of several words about one type the last counts.
func (s *Set) True(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionTrue, reason, format, args)
}

// False says that something is not as it should be.
func (s *Set) False(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionFalse, reason, format, args)
}

// Unknown says that something may be as it should be.
func (s *Set) Unknown(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionUnknown, reason, format, args)
}

// Abnormal says, by a condition that is True, that something is wrong. Nothing is wrong where it is not said.
func (s *Set) Abnormal(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionTrue, reason, format, args)
	if s.abnormal == nil {
		s.abnormal = map[string]bool{}
	}
	s.abnormal[typ] = true
}

// Reconciling says that work goes on.
func (s *Set) Reconciling(reason, format string, args ...any) {
	s.Abnormal(Reconciling, reason, format, args...)
}

// Stalled says that no work goes on, and that more tries are of no use.
func (s *Set) Stalled(reason, format string, args ...any) {
	s.Abnormal(Stalled, reason, format, args...)
}

// Keep has conditions of these types stay as they are although they are not said: others write them.
func (s *Set) Keep(types ...string) { s.kept = append(s.kept, types...) }

func (s *Set) say(typ string, status metav1.ConditionStatus, reason, format string, args []any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	c := metav1.Condition{
		Type: typ, Status: status, Reason: reasonOf(reason), Message: cut(message), ObservedGeneration: s.generation,
	}
	delete(s.abnormal, typ)
	if i := slices.IndexFunc(s.said, func(o metav1.Condition) bool { return o.Type == typ }); i >= 0 {
		s.said[i] = c
		return
	}
	s.said = append(s.said, c)
}

// Into writes what was said, and Ready, into the conditions of a status, and says whether that has changed anything.
// The time of the last transition is that of the change of the status alone. What was not said is removed, unless it is
// kept, or of a newer generation. The order of what stays is not changed.
func (s *Set) Into(conditions *[]metav1.Condition) (changed bool) {
	said := s.said
	if !slices.ContainsFunc(said, func(c metav1.Condition) bool { return c.Type == Ready }) {
		said = append(slices.Clip(said), s.ready())
	}
	next := make([]metav1.Condition, 0, len(said))
	for _, old := range *conditions {
		i := slices.IndexFunc(said, func(c metav1.Condition) bool { return c.Type == old.Type })
		switch {
		case old.ObservedGeneration > s.generation || i < 0 && slices.Contains(s.kept, old.Type):
			next = append(next, old)
		case i >= 0:
			now := said[i]
			if now.LastTransitionTime = old.LastTransitionTime; now.Status != old.Status {
				now.LastTransitionTime = metav1.NewTime(s.now())
			}
			changed = changed || now != old
			next = append(next, now)
		default:
			changed = true
		}
	}
	for _, c := range said {
		if !slices.ContainsFunc(next, func(o metav1.Condition) bool { return o.Type == c.Type }) {
			c.LastTransitionTime = metav1.NewTime(s.now())
			next, changed = append(next, c), true
		}
	}
	if changed {
		*conditions = next
	}
	return changed
}

// ready computes the condition Ready.
func (s *Set) ready() metav1.Condition {
	out := metav1.Condition{
		Type: Ready, Status: metav1.ConditionTrue, Reason: "AsAskedFor", ObservedGeneration: s.generation,
	}
	var why []string
	for _, c := range s.said {
		status := c.Status
		if s.abnormal[c.Type] {
			status = metav1.ConditionFalse
		}
		if status == metav1.ConditionTrue || badness(status) < badness(out.Status) {
			continue
		}
		if badness(status) > badness(out.Status) {
			out.Status, out.Reason, why = status, c.Reason, nil
		}
		why = append(why, strings.TrimSuffix(fmt.Sprintf("%s: %s", c.Type, cmp.Or(c.Message, c.Reason)), "."))
	}
	out.Message = cut(strings.Join(why, "; "))
	return out
}

func badness(s metav1.ConditionStatus) int {
	switch s {
	case metav1.ConditionTrue:
		return 0
	case metav1.ConditionUnknown:
		return 1
	}
	return 2
}

// What the API server takes.
const (
	maxReason  = 1024
	maxMessage = 32768
)

var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonOf makes a reason one that the API server takes: a status that cannot be written tells nothing.
func reasonOf(reason string) string {
	if len(reason) <= maxReason && reasonForm.MatchString(reason) {
		return reason
	}
	var b strings.Builder
	for _, word := range strings.FieldsFunc(reason, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) {
		if b.Len() == 0 {
			word = strings.TrimLeft(word, "0123456789")
		}
		if word != "" && b.Len()+len(word) <= maxReason {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return cmp.Or(b.String(), "Unspecified")
}

// cut shortens a message to what the API server takes.
func cut(s string) string {
	if s = strings.ToValidUTF8(s, "�"); len(s) <= maxMessage {
		return s
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
