package rounds

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPeersTakeTurns(t *testing.T) {
	t.Parallel()
	var order []string
	peer := func(name string, values ...float64) Peer {
		n := 0
		return Peer{name, func() ([]float64, error) {
			order = append(order, name)
			n++
			return []float64{values[n-1]}, nil
		}}
	}
	results, err := Run(3, peer("a", 3, 1, 2), peer("b", 10, 30, 20))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "b", "a", "b"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	want := []Result{{"a", []Value{{2, 1, 3}}}, {"b", []Value{{20, 10, 30}}}}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	var out strings.Builder
	Print(&out, "title", []string{"ns"}, results)
	if got := out.String(); !strings.Contains(got, "20 (10 … 30)") || !strings.Contains(got, "| 10") {
		t.Errorf("got %s", got)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		q    float64
		want int
	}{{0, 1}, {0.5, 3}, {0.99, 4}, {1, 4}} {
		if got := Quantile([]int{4, 2, 1, 3}, tc.q); got != tc.want {
			t.Errorf("%v: got %d, want %d", tc.q, got, tc.want)
		}
	}
}
