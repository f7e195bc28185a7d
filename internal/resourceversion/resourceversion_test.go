package resourceversion_test

import (
	"testing"

	"go.uber.org/goleak"
	upstream "k8s.io/apimachinery/pkg/util/resourceversion"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Compare agrees with the comparison of apimachinery.
func TestCompare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.OneOf(rapid.StringMatching(`[1-9][0-9]{0,25}`), rapid.StringMatching(`[0-9a-f]{0,4}`))
		a, b := version.Draw(t, "a"), version.Draw(t, "b")
		check(t, a, b)
		check(t, a, a)
	})
}

func FuzzCompare(f *testing.F) {
	f.Add("1", "10")
	f.Add("", "0")
	f.Add("99999999999999999999", "099")
	f.Fuzz(func(t *testing.T, a, b string) { check(t, a, b) })
}

func check(t interface{ Errorf(string, ...any) }, a, b string) {
	order, ok := resourceversion.Compare([]byte(a), b)
	want, err := upstream.CompareResourceVersion(a, b)
	if ok != (err == nil) || order != want {
		t.Errorf("%q and %q: %d %v, want %d %v", a, b, order, ok, want, err)
	}
	if got := resourceversion.Older(a, b); got != (err == nil && want < 0) {
		t.Errorf("%q older than %q: %v, want %d %v", a, b, got, want, err)
	}
	if got := resourceversion.AtLeast(a, b); got != (err == nil && want >= 0 || a == b) {
		t.Errorf("%q at least %q: %v, want %d %v", a, b, got, want, err)
	}
}

func TestAllocations(t *testing.T) {
	a, b := []byte("1234567890123456789012345678901234567890"), "1234567890123456789012345678901234567891"
	if n := testing.AllocsPerRun(100, func() {
		_, _ = resourceversion.Older(a, b), resourceversion.AtLeast(a, b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
