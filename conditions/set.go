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

// Well-known types of conditions.
const (
	Ready       = "Ready"       // computed from the others
	Reconciling = "Reconciling" // present while the actual state is being changed to the desired state (kstatus)
	Stalled     = "Stalled"     // present while the work cannot continue without intervention (kstatus)
)

// Set collects the conditions that one reconciliation sets. It is not safe for concurrent use.
type Set struct {
	generation int64
	said       []metav1.Condition // in the order in which they were first set
	abnormal   map[string]bool
	kept       []string
	now        func() time.Time
}

// Of returns an empty set for the current generation of an object.
func Of(obj metav1.Object) *Set { return &Set{generation: obj.GetGeneration(), now: time.Now} }

// True sets the condition typ to True. reason is one word in camel case, for programs. format and args make a sentence
// for people. If a type is set several times, the last call counts.
func (s *Set) True(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionTrue, reason, format, args)
}

// False sets the condition typ to False. See True for the arguments.
func (s *Set) False(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionFalse, reason, format, args)
}

// Unknown sets the condition typ to Unknown. See True for the arguments.
func (s *Set) Unknown(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionUnknown, reason, format, args)
}

// Abnormal sets the condition typ to True, where True means a problem. Without the call there is no problem and no
// condition.
func (s *Set) Abnormal(typ, reason, format string, args ...any) {
	s.say(typ, metav1.ConditionTrue, reason, format, args)
	if s.abnormal == nil {
		s.abnormal = map[string]bool{}
	}
	s.abnormal[typ] = true
}

// Reconciling reports that the work continues.
func (s *Set) Reconciling(reason, format string, args ...any) {
	s.Abnormal(Reconciling, reason, format, args...)
}

// Stalled reports that the work has stopped and that retries do not help.
func (s *Set) Stalled(reason, format string, args ...any) {
	s.Abnormal(Stalled, reason, format, args...)
}

// Keep leaves conditions of these types unchanged if they are not set. Use it for conditions that other programs write.
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

// Into writes the conditions of the set, and Ready, to conditions, and reports whether that changed any of them.
// LastTransitionTime changes only if the status of a condition changes. Conditions that are not in the set are removed,
// unless they are kept or of a newer generation. The order of the remaining conditions does not change.
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

// Limits of the API server.
const (
	maxReason  = 1024
	maxMessage = 32768
)

var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonOf converts a reason to the form that the API server accepts. The server would reject the whole status
// otherwise.
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

// cut truncates a message to the limit of the API server.
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
