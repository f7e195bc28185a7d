// Package e2e_test tests package dependent on a real control plane.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
