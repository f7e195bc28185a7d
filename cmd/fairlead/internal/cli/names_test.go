package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
)

func TestGroupName(t *testing.T) {
	t.Parallel()
	namespace, name, err := GroupName("operators/gateways")
	if namespace != "operators" || name != "gateways" || err != nil {
		t.Errorf("%q, %q, %v", namespace, name, err)
	}
	for _, tc := range []struct{ reason, name string }{
		{"a namespace is required", "gateways"},
		{"no part may be empty", "/gateways"},
		{"no part may be empty", "operators/"},
		{"a second slash belongs to no part", "operators/gateways/x"},
		{"a label value has at most 63 bytes", "operators/" + strings.Repeat("g", 64)},
	} {
		if _, _, err := GroupName(tc.name); err == nil || !strings.Contains(err.Error(), "is not namespace/name") {
			t.Errorf("%s: %q: %v", tc.reason, tc.name, err)
		}
	}
}

func TestOperationResource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		args   []string
		want   operations.Resource // empty: wrong usage
	}{
		{"type and id", []string{"Application/shop"}, operations.Resource{Type: "Application", ID: "shop"}},
		{"the id begins after the first slash", []string{"app/a/b"}, operations.Resource{Type: "app", ID: "a/b"}},
		{"two arguments may contain slashes", []string{"a/b", "c/d"}, operations.Resource{Type: "a/b", ID: "c/d"}},
		{"nothing", nil, operations.Resource{}},
		{"no id", []string{"Application"}, operations.Resource{}},
		{"an empty type", []string{"/shop"}, operations.Resource{}},
		{"too many arguments", []string{"a", "b", "c"}, operations.Resource{}},
	} {
		got, err := OperationResource(tc.args)
		var usage *UsageError
		if wrong := tc.want == (operations.Resource{}); wrong != errors.As(err, &usage) || !wrong && got != tc.want {
			t.Errorf("%s: %+v, %v", tc.reason, got, err)
		}
	}
}
