package executor_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
)

// resources of most tests
var (
	shop = operationbed.Shop
	app  = operationbed.App
)

// bench is the Bench of this package's tests.
type bench struct{ *operationbed.Bench }

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	return &bench{operationbed.New(t)}
}

func setupOn(t *testing.T, config *rest.Config, namespace string) *bench {
	t.Helper()
	return &bench{operationbed.On(t, config, namespace)}
}

func TestOperation(t *testing.T) {
	operationbed.PlayCourses(t, func(t *testing.T) *operationbed.Bench { return setup(t).Bench })
}
