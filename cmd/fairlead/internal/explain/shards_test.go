package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/shard/group"
)

// TestPrintShards prints members with their slots and times, the slots of no member, and the moves.
func TestPrintShards(t *testing.T) {
	t.Parallel()
	now, load := time.Unix(1_790_000_000, 0), 70
	report := &group.Report{
		Of: 4,
		Members: []group.MemberReport{
			{Name: "a", Slots: []int{0, 1}, Since: now.Add(-time.Hour), Renewed: now.Add(-2 * time.Second), Load: &load},
			{Name: "b", Since: now.Add(-time.Minute), Uncovered: []string{"Route"}},
			{Name: "c", Slots: []int{3}, Since: now.Add(-time.Minute), Uncovered: []string{"Gateway", "Route"}},
		},
		Moving: []group.Move{{Slot: 1, From: "a", To: "b"}, {Slot: 2, To: "b"}},
	}
	var out strings.Builder
	if err := printShards(&out, report, now); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"MEMBER HOLDS SLOTS OBJECTS JOINED RENEWED", "a 2 of 4 0-1 70 60m ago 2s ago", "b 0 of 4 - - 60s ago never",
		"c 1 of 4 3 - 60s ago never",
		"no holder 1 of 4", "c is older than other members: Gateway, Route in its 1 slots have no worker",
		"slot 1 moves from a to b", "slot 2 moves from no holder to b",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
