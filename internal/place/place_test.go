package place_test

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/place"
)

func TestOutside(t *testing.T) {
	t.Parallel()
	own := place.Outside("example.com/other")
	if want := "place/place_test.go:12"; own != want {
		t.Errorf("the caller is at %s, want %s", own, want)
	}
	if tests := place.Outside("github.com/fairlead-io/fairlead/internal/place_test"); tests != "place/place_test.go:16" {
		t.Errorf("a test counts as outside of its package, but got %s", tests)
	}
	var through string
	_ = slices.ContainsFunc([]int{0}, func(int) bool {
		through = place.Outside("github.com/fairlead-io/fairlead/internal/place")
		return true
	})
	if want := "place/place_test.go:21"; through != want {
		t.Errorf("called through another package: %s, want %s", through, want)
	}
}
