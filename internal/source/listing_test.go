package source

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListingDoubts(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		change        func(*Config)
		l             listing
		missing, know int
		estimates     bool
		doubted       bool
		wantEstimates bool
	}{
		"no object is missing": {l: listing{count: 5}, know: 5},
		"some deletions":       {l: listing{count: 5}, missing: 100, know: 105},
		"too many deletions":   {l: listing{count: 5}, missing: 101, know: 106, doubted: true},
		"no bound on deletions": {
			change: func(c *Config) { c.BulkDeleteGuard = -1 }, l: listing{count: 5},
			missing: 101, know: 106,
		},
		"empty":                       {know: 1, missing: 1, doubted: true},
		"empty, and trusted":          {change: func(c *Config) { c.TrustEmptyList = true }, know: 1, missing: 1},
		"empty, and nothing is known": {},
		"fewer than promised":         {l: listing{count: 5, promised: 6}, know: 5, doubted: true},
		"fewer than an estimate": {
			l: listing{count: 5, promised: 6}, know: 5, estimates: true,
			wantEstimates: true,
		},
		"an empty page": {l: listing{count: 5, gap: true}, know: 5, doubted: true},
		"a nameless object may be the missing one": {l: listing{count: 5, nameless: 1}, missing: 1, know: 5, doubted: true},
		"confirmed": {
			l: listing{confirms: &confirmation{missing: 3, known: 3}}, missing: 3, know: 3,
		},
		"confirmed, and so an estimate": {
			l: listing{count: 5, promised: 6, confirms: &confirmation{listed: 5}}, know: 5, wantEstimates: true,
		},
		"not confirmed: far more are missing": {
			l: listing{count: 5, confirms: &confirmation{missing: 3, known: 200}}, missing: 104, know: 200, doubted: true,
		},
		"not confirmed: shorter than the first": {
			l: listing{count: 4, gap: true, confirms: &confirmation{listed: 5}}, know: 5, doubted: true,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			cfg := partConfig()
			if c.change != nil {
				cfg = partConfig(c.change)
			}
			c.l.staged = &memoryReplacement{m: &memory{miss: c.missing, count: c.know}}
			doubt, estimates := c.l.doubt(cfg, c.estimates)
			if (doubt != nil) != c.doubted || estimates != c.wantEstimates {
				t.Errorf("doubt %v, estimates %v, want %v and %v", doubt, estimates, c.doubted, c.wantEstimates)
			}
		})
	}
}

// TestListingStages: a listing puts readable objects, quarantines the others, and aborts without a commit.
func TestListingStages(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig())
	l := r.lister().stager.begin(listOf{}, nil)
	object := func(change ChangeType, name string, err error) *event {
		return &event{kind: evObject, change: change, obj: *header("ns", name, "1"), err: err}
	}
	l.add(object(Added, "a", nil))
	l.add(object(Added, "b", errors.New("bad")))
	l.change(object(Added, "c", nil))
	l.change(object(Modified, "c", nil))
	l.change(object(Deleted, "c", errors.New("bad")))
	if l.count != 2 || r.counts.WireObjects != 5 || r.counts.Quarantined != 1 {
		t.Errorf("counted %d objects, %+v", l.count, r.counts)
	}
	l.close()
	want := []string{"put a", "QUARANTINE b", "put c", "put c", "remove c", "abort"}
	if diff := cmp.Diff(want, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	l = r.lister().stager.begin(listOf{}, nil)
	l.commit(Commit{Version: "5"})
	l.close()
	if last := r.sink.calls[len(r.sink.calls)-1]; last != "commit 5" {
		t.Errorf("the last call is %q", last)
	}
}
