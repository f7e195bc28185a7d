// Package condition reads the conditions of any object and formats them for explanations of why an object makes no
// progress.
package condition

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of returns the conditions in the status of an object. It encodes the object to find them.
func Of(obj any) ([]metav1.Condition, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var head struct {
		Status struct{ Conditions []metav1.Condition }
	}
	err = json.Unmarshal(raw, &head)
	return head.Status.Conditions, err
}

// Bounds of the text. Other programs write the conditions.
const (
	maxListed  = 8
	maxMessage = 256 // bytes
)

// Format formats conditions: those that are not True first, at most eight, with messages of at most 256 bytes.
func Format(all []metav1.Condition) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b metav1.Condition) int { return rank(a) - rank(b) })
	more := ""
	if len(all) > maxListed {
		all, more = all[:maxListed], "; …"
	}
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = One(c)
	}
	return strings.Join(texts, "; ") + more
}

func rank(c metav1.Condition) int {
	switch c.Status {
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionTrue:
		return 2
	}
	return 1
}

// One formats a condition, such as "PodScheduled is False (Unschedulable): 0/1 nodes are available".
func One(c metav1.Condition) string {
	text := c.Type + " is " + string(c.Status)
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	if message := strings.Join(strings.Fields(c.Message), " "); message != "" {
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
		}
		text += ": " + message
	}
	return text
}
