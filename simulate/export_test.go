package simulate

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// Search is Test without its verdict. id tells the call from others of the same test. The report is nil in a child.
func Search(t *testing.T, id string, s Subject, parts ...Part) (*engine.Report, error) {
	t.Helper()
	return search(t, t.Name()+" "+id, s, parts)
}
