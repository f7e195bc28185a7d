package operations_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
)

// TestServerRefuses has the server of the other tests here hold the rules that a real one does.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	operationbed.PlayRules(operationbed.New(t))
}
