package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

func TestNearTimeoutIsCounted(t *testing.T) {
	tests := map[string]struct {
		reason        string
		timeout, took time.Duration
		want          float64
	}{
		"Short":   {"Half of the time is not near.", time.Hour, 30 * time.Minute, 0},
		"Near":    {"Over nine tenths are.", time.Hour, 55 * time.Minute, 1},
		"Longest": {"A timeout of two centuries does not overflow.", 2_000_000 * time.Hour, time.Second, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMetrics(func() census { return census{} }, func() int { return 0 })
			op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{Timeout: metav1.Duration{Duration: tc.timeout}}}
			op.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
			op.Status.FinishedAt = course.Micro(op.CreationTimestamp.Add(tc.took))
			m.end(op, "Succeeded")
			if got := testutil.ToFloat64(m.near.WithLabelValues("", "")); got != tc.want {
				t.Errorf("%s: counted %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestSeriesAreBounded lets namespaces invent categories one after the other. Together they add a bounded number of
// series, and each leaves some to later namespaces.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(func() census { return census{} }, func() int { return 0 })
	const n = 10 * maxCategories
	own := func(namespace string) (added int) {
		before := testutil.CollectAndCount(m.started)
		for i := range n {
			op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{OperationCategory: fmt.Sprint(namespace, "-", i)}}
			op.Namespace = namespace
			op.Status.FinishedAt = course.Micro(time.Now())
			m.start(op)
			m.end(op, "Succeeded")
		}
		return testutil.CollectAndCount(m.started) - before
	}
	// one of them is "other"
	if first, second := own("a")-1, own("b"); first != maxCategories/2 || second != maxCategories/4 {
		t.Errorf("the first namespace added %d, the second one %d", first, second)
	}
	for i := range 20 {
		own(fmt.Sprint("c", i))
	}
	for name, series := range map[string]int{
		"started": testutil.CollectAndCount(m.started), "finished": testutil.CollectAndCount(m.finished),
		"duration": testutil.CollectAndCount(m.duration),
	} {
		if series > maxCategories+1 {
			t.Errorf("%s has %d series", name, series)
		}
	}
	if got := testutil.ToFloat64(m.started.WithLabelValues("", "other")); got < 22*n-maxCategories {
		t.Errorf("other: %v", got)
	}
}
