package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FaultKind is a kind of fault that a conforming cluster may show.
type FaultKind string

// The kinds of faults. The text of a kind is what users write in options and read in plans.
const (
	CrashBefore FaultKind = "crash-before" // the subject is killed just before it sends a write
	CrashAfter  FaultKind = "crash-after"  // the subject is killed when a write is stored and not yet answered
	Lost        FaultKind = "lost"         // a write is stored, and its answer is lost
	Unsent      FaultKind = "unsent"       // a write fails and is not stored
	Refused     FaultKind = "error"        // a write is answered with 500 and not stored
	Throttled   FaultKind = "throttled"    // a write is answered with 429 and not stored
	Conflict    FaultKind = "conflict"     // another client writes to the object just before
	Late        FaultKind = "late"         // the watches of one kind are late from a change on
	LateCrash   FaultKind = "late-crash"   // as Late, and the subject is killed at its next write
	Expired     FaultKind = "expired"      // the watches of one kind break from a change on, and begin with a new list
	Stale       FaultKind = "stale"        // the subject is killed at a change, and the next one lists an older state
	Pause       FaultKind = "pause"        // the leader is suspended before a write, until another replica leads
	Depose      FaultKind = "depose"       // the leader cannot renew its lock from a write on, until another one leads
)

// Classes are the groups of faults that option Faults and flag --faults select.
var Classes = map[string][]FaultKind{
	"crash":   {CrashAfter, CrashBefore},
	"late":    {Late, LateCrash},
	"expired": {Expired},
	"lost":    {Lost},
	"stale":   {Stale},
	"error":   {Unsent, Conflict, Refused, Throttled},
	"pause":   {Pause},
	"depose":  {Depose},
}

// ClassNames returns the names of Classes, sorted.
func ClassNames() []string { return slices.Sorted(maps.Keys(Classes)) }

// class returns the class of the kind.
func (k FaultKind) class() string {
	for name, kinds := range Classes {
		if slices.Contains(kinds, k) {
			return name
		}
	}
	return ""
}

// AtChange reports whether the fault happens at a change that the subject watches, and not at a write.
func (k FaultKind) AtChange() bool { return k == Late || k == LateCrash || k == Expired || k == Stale }

// needsReplicas reports whether a fault only shows with two replicas.
func (k FaultKind) needsReplicas() bool { return k == Pause || k == Depose }

// NeedsReplicas reports whether a fault of the plan only shows with two replicas.
func (p Plan) NeedsReplicas() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind.needsReplicas() })
}

// ParseClasses returns the faults of some classes. Without a class, it returns nil.
func ParseClasses(classes []string) ([]FaultKind, error) {
	var out []FaultKind
	for _, class := range classes {
		kinds, ok := Classes[class]
		if !ok {
			return nil, fmt.Errorf("there is no class of faults %q: the classes are %s", class,
				strings.Join(ClassNames(), ", "))
		}
		out = append(out, kinds...)
	}
	return out, nil
}

// A Fault is one fault at one moment. It happens once in a run.
type Fault struct {
	Kind FaultKind `json:"kind"`
	At   Moment    `json:"at"`
	// Since is the change whose state the lists of the kind show after a fault Stale.
	Since Moment `json:"since,omitzero"`
	// For is how long a watch is late or broken, or how long a pause lasts. 0 for other kinds.
	For Duration `json:"for,omitzero"`
}

func (f Fault) String() string {
	switch f.Kind {
	case CrashBefore:
		return "the subject is killed before " + f.At.String()
	case CrashAfter:
		return "the subject is killed after " + f.At.String() + ", before the answer"
	case Lost:
		return "the answer to " + f.At.String() + " is lost"
	case Unsent:
		return f.At.String() + " fails on the network and is not stored"
	case Refused:
		return f.At.String() + " is answered with 500"
	case Throttled:
		return f.At.String() + " is answered with 429"
	case Conflict:
		return "another client writes to the object just before " + f.At.String()
	case Late:
		return fmt.Sprintf("watches of %s are late by %s from %s on", f.At.Kind(), f.For, f.At)
	case LateCrash:
		return fmt.Sprintf("watches of %s are late by %s from %s on, and the subject is killed at its next write",
			f.At.Kind(), f.For, f.At)
	case Expired:
		return fmt.Sprintf("watches of %s break at %s, and begin with a new list after %s", f.At.Kind(), f.At, f.For)
	case Stale:
		return fmt.Sprintf("the subject is killed at %s, and the next one sees %s for %s as they were after %s",
			f.At, f.At.Kind(), f.For, f.Since)
	case Pause:
		return fmt.Sprintf("the leader is suspended for %s at %s", f.For, f.At)
	case Depose:
		return fmt.Sprintf("the leader cannot renew its lock for %s from %s on", f.For, f.At)
	}
	return string(f.Kind) + " at " + f.At.String()
}

// A Plan is one schedule: faults, and the seed of all that is random.
type Plan struct {
	Seed   uint64  `json:"seed"`
	Faults []Fault `json:"faults,omitempty"`
	// Steps is the number of steps of the workload that are played. 0 means all.
	Steps int `json:"steps,omitempty"`
	// Names are expressions of names that the subject makes up at random, as randomNames returns them.
	Names []string `json:"names,omitempty"`
	// Varies are fields that differ from run to run, and so do not identify a moment: the elements of a Varying.
	Varies []string `json:"varies,omitempty"`
}

func (p Plan) String() string {
	if len(p.Faults) == 0 {
		return "no fault"
	}
	texts := make([]string, len(p.Faults))
	for i, f := range p.Faults {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// class returns the classes of the faults of a plan.
func (p Plan) class() string {
	var classes []string
	for _, f := range p.Faults {
		classes = append(classes, f.Kind.class())
	}
	slices.Sort(classes)
	return strings.Join(slices.Compact(classes), " and ")
}

// key identifies the faults of a plan, whatever its seed.
func (p Plan) key() string {
	b, err := json.Marshal(p.Faults)
	if err != nil {
		panic(err) // a Plan has only strings and numbers
	}
	return fmt.Sprint(p.Steps, string(b))
}

// Duration is a time.Duration that is "10s" in JSON.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the form of time.ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
