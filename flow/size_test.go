package flow

import (
	"testing"
	"unsafe"
)

// A parked fiber is its record, and extra if it needs one: what they take is what a million fibers take.
func TestTheRecordsOfAFiberDoNotGrow(t *testing.T) {
	t.Parallel()
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Fatal("the sizes below are those of 64 bits")
	}
	for _, tc := range []struct {
		name      string
		got, most uintptr
	}{
		{"fiber", unsafe.Sizeof(Fiber[packet]{}), 272},
		{"extra", unsafe.Sizeof(extra{}), 272},
		{"parking", unsafe.Sizeof(parking{}), 72},
		{"trail", unsafe.Sizeof(trail{}), 52},
	} {
		if tc.got > tc.most {
			t.Errorf("%s takes %d bytes, %d are allowed", tc.name, tc.got, tc.most)
		}
	}
}
