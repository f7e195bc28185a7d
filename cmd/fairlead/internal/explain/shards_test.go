package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
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
			{
				Name: "c", Slots: []int{3}, Since: now.Add(-time.Minute), Load: new(7),
				Uncovered: []string{"Gateway", "Route"}, Unready: []int{3}, Reason: "gateways (Failing: Forbidden)",
			},
		},
		Moving: []group.Move{{Slot: 1, From: "a", To: "b"}, {Slot: 2, To: "b"}},
	}
	var out strings.Builder
	if err := printShards(&out, report, now); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"MEMBER HOLDS SLOTS OBJECTS JOINED RENEWED", "a 2 of 4 0-1 70 60m ago 2s ago", "b 0 of 4 - - 60s ago never",
		"c 1 of 4 3 7 60s ago never",
		"no holder 1 of 4", "c is older than other members: Gateway, Route in its 1 slots have no worker",
		"c is not ready for its slots 3: gateways (Failing: Forbidden)",
		"slot 1 moves from a to b", "slot 2 moves from no holder to b",
	}
	if diff := cmp.Diff(want, words(out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// words returns the lines of a text, with one space between words.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// TestPrintBoundaries prints whether slots have boundaries by the objects, and a namespace with half of all objects.
// The advice depends on the program.
func TestPrintBoundaries(t *testing.T) {
	t.Parallel()
	big := &group.NamespaceReport{Namespace: "big", Objects: 60, Of: 100}
	for _, tc := range []struct {
		reason string
		report group.Report
		want   []string
	}{
		{"equal ranges", group.Report{}, nil},
		{"by objects", group.Report{Boundaries: []string{"0x0000000000000000"}}, []string{
			"the slots have similar numbers of objects",
		}},
		{"changing", group.Report{Changing: true, Moving: []group.Move{{From: "a"}, {From: "a", To: "b"}}}, []string{
			"the boundaries of the slots are changing", "slot 0 moves from a to b",
		}},
		{"large", group.Report{Dominant: big, Members: []group.MemberReport{{Program: "p"}}}, []string{
			"namespace big has 60 of 100 objects, and is in one slot: to divide its objects, share by uid " +
				"(watch --shard-by uid, or fairlead.ShardBy(shard.UID))",
		}},
		{"large, of operations", group.Report{
			Dominant: big, Members: []group.MemberReport{{Program: cli.ControllerProgram}},
		}, []string{"namespace big has 60 of 100 objects, and is in one slot"}},
	} {
		var out strings.Builder
		if err := printShards(&out, &tc.report, time.Now()); err != nil {
			t.Fatal(err)
		}
		got := words(out.String())[1+len(tc.report.Members):]
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
