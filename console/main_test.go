package console_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMistakes: New refuses invalid options.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]console.Options{
		"there is no Runtime": {},
	} {
		if _, err := console.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := (console.Options{}).Open(nil); err == nil {
		t.Error("no runtime is good enough")
	}
}
