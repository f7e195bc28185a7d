package source

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"pgregory.net/rapid"
)

// TestCompareVersions: the order is the one of apimachinery.
func TestCompareVersions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.OneOf(rapid.StringMatching(`[1-9][0-9]{0,25}`), rapid.StringMatching(`[0-9a-f]{0,4}`))
		a, b := version.Draw(t, "a"), version.Draw(t, "b")
		order, ok := compareVersions([]byte(a), b)
		want, err := resourceversion.CompareResourceVersion(a, b)
		if ok != (err == nil) || ok && order != want {
			t.Errorf("%q and %q: %d %v, want %d %v", a, b, order, ok, want, err)
		}
	})
}
