package e2e_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/install"
)

func setup(t *testing.T) *operationbed.Bench {
	t.Helper()
	t.Parallel()
	b := operationbed.On(t, env.Config(t), env.Namespace(t))
	if err := install.CRDs(b.Ctx, b.Calls); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAPIServerRefuses checks that the API server enforces the rules of the custom resources for every client.
func TestAPIServerRefuses(t *testing.T) { operationbed.PlayRules(setup(t)) }

// TestAPIServerRefusesUnknownValues checks that the API server refuses values outside an enum.
func TestAPIServerRefusesUnknownValues(t *testing.T) {
	b := setup(t)
	if _, err := b.Scheduler.Schedule(b.Ctx, operations.Request{
		ID: "one", Type: operations.Delete, Resource: operationbed.Shop,
	}); err != nil {
		t.Fatal(err)
	}
	for subresource, tc := range map[string]struct{ body, want string }{
		"":       {`{"spec":{"operationType":"Drop"}}`, "spec.operationType"},
		"status": {`{"status":{"phase":"Done"}}`, "status.phase"},
	} {
		err := b.Do(call.Request{
			Verb: call.VerbPatch, PatchType: types.MergePatchType, Subresource: subresource, Body: []byte(tc.body),
		})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.body, err, tc.want)
		}
	}
}
