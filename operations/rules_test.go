package operations_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
)

// TestServerRefuses: the in-memory server of these tests enforces the rules of a real API server.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	operationbed.PlayRules(operationbed.New(t))
}
