package condition

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: "Initialized", Status: "True"},
		{Type: "Odd", Status: "Unknown", Message: "two\nlines"},
		{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/1 nodes are available"},
	}}}
	all, err := Of(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := "PodScheduled is False (Unschedulable): 0/1 nodes are available; Odd is Unknown: two lines; Initialized is " +
		"True"
	if got := Format(all); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Format(nil); got != "" {
		t.Errorf("no condition: %q", got)
	}
	var many []metav1.Condition
	for i := range 100 {
		many = append(many, metav1.Condition{Type: fmt.Sprint(i), Status: "False", Message: strings.Repeat("ä", 1<<20)})
	}
	if got := Format(many); len(got) > 4<<10 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes of many conditions", len(got))
	}
}
