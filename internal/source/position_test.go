package source

import (
	"testing"

	"github.com/fairlead-io/fairlead/shard"
)

// TestPositionClassifies: a position at version 10 that has received object a at 8 and the deletion of b at 9.
func TestPositionClassifies(t *testing.T) {
	t.Parallel()
	at := func() *position {
		p := &position{}
		p.complete("5")
		for _, c := range []struct {
			change ChangeType
			o      *Object
		}{{Modified, header("ns", "a", "8")}, {Deleted, header("ns", "b", "9")}, {Added, header("ns", "c", "10")}} {
			p.record(c.change, c.o)
			p.advance(c.o.Header.ResourceVersion)
		}
		return p
	}
	for reason, c := range map[string]struct {
		change    ChangeType
		o         *Object
		damaged   bool
		want      delivery
		wantOlder bool
	}{
		"a newer change":                            {Modified, header("ns", "a", "11"), false, deliverNew, false},
		"the last change again":                     {Added, header("ns", "c", "10"), false, replayed, false},
		"an earlier change again":                   {Modified, header("ns", "a", "8"), false, replayed, true},
		"a change from before the base":             {Modified, header("ns", "x", "4"), false, replayed, true},
		"a reordered change of another object":      {Modified, header("ns", "x", "7"), false, deliverNew, false},
		"a reordered change of an object at 8":      {Modified, header("ns", "a", "7"), false, replayed, true},
		"the deletion again":                        {Deleted, header("ns", "b", "9"), false, replayed, true},
		"a deletion with the version of the object": {Deleted, header("ns", "a", "8"), false, deliverOldDeletion, true},
		"an unreadable deletion with that version":  {Deleted, header("ns", "a", "8"), true, replayed, true},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			got, older := at().classify(c.change, c.o, !c.damaged)
			if got != c.want || older != c.wantOlder {
				t.Errorf("classified as %d, older %v, want %d, %v", got, older, c.want, c.wantOlder)
			}
		})
	}
}

// TestPositionWithoutOrder: versions without order are compared with the last changes only.
func TestPositionWithoutOrder(t *testing.T) {
	t.Parallel()
	p := &position{}
	p.complete("v-a")
	if p.isOrdered() {
		t.Error("the versions have an order")
	}
	if d, _ := p.classify(Modified, header("ns", "a", "v-a"), true); d != replayed {
		t.Error("the version of the list is delivered again")
	}
	if d, older := p.classify(Modified, header("ns", "a", "v-0"), true); d != deliverNew || older {
		t.Error("another version is not delivered")
	}
}

// TestPositionNeverGoesBack: only start and complete may lower the version.
func TestPositionNeverGoesBack(t *testing.T) {
	t.Parallel()
	p := &position{}
	p.complete("10")
	for _, version := range []string{"9", "0", "", "not-a-number"} {
		if p.advance([]byte(version)); string(p.version()) != "10" {
			t.Errorf("version %q moves the position to %s", version, p.version())
		}
	}
	if p.complete("7"); string(p.version()) != "7" || !p.isAfter("6") || !p.isBehind("8") || !p.hasReached("7") {
		t.Errorf("after a list at version 7 the position is %s", p.version())
	}
}

// TestPositionOfGainedSlots: changes of a gained slot up to its list are dropped, and none after the watch passes it.
func TestPositionOfGainedSlots(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{Slots: 2, By: shard.Namespace}
	var in, out string
	for n := 0; in == "" || out == ""; n++ {
		ns := string(rune('a' + n))
		if set := layout.Set(0); set.HasBytes([]byte(ns), nil) {
			in = ns
		} else {
			out = ns
		}
	}
	p := &position{}
	p.complete("5")
	p.addGain(gain{slots: layout.Set(0), version: "8"})
	for reason, c := range map[string]struct {
		change ChangeType
		o      *Object
		want   delivery
	}{
		"of the gained slot, before its list": {Modified, header(in, "a", "7"), alreadyListed},
		"of the gained slot, at its list":     {Modified, header(in, "a", "8"), alreadyListed},
		"of the gained slot, after its list":  {Modified, header(in, "a", "9"), deliverNew},
		"of a slot held before":               {Modified, header(out, "a", "7"), deliverNew},
		"a deletion":                          {Deleted, header(in, "a", "7"), deliverNew},
	} {
		if got, _ := p.classify(c.change, c.o, true); got != c.want {
			t.Errorf("a change %s is classified as %d, want %d", reason, got, c.want)
		}
	}
	p.keepGains(layout.Set(1))
	if got, _ := p.classify(Modified, header(in, "a", "7"), true); got != deliverNew {
		t.Error("the list of a lost slot still counts")
	}
	p.addGain(gain{slots: layout.Set(0), version: "8"})
	p.advance([]byte("8"))
	if got, _ := p.classify(Modified, header(in, "a", "7"), true); got != replayed {
		t.Error("a change from before the list is not a replay once the watch has passed it")
	}
	p = &position{}
	p.complete("5")
	p.advance([]byte("8"))
	p.addGain(gain{slots: layout.Set(0), version: "8"})
	if got, _ := p.classify(Modified, header(in, "a", "7"), true); got != replayed {
		t.Error("a change from before the list is not a replay if the watch is at the version of the list")
	}
}
