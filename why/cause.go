package why

import (
	"encoding/json"
	"time"
)

// Type says what kind of cause it is. Programs may have types of their own.
type Type string

// The causes that the library tells.
const (
	Parked           Type = "Parked"           // a flow waits at a step: for a condition, a call, an answer
	LockHeld         Type = "LockHeld"         // another operation goes first
	WebhookMissing   Type = "WebhookMissing"   // the Webhook to call does not exist
	NotReleased      Type = "NotReleased"      // credentials or a target that its owner has not released
	Quarantined      Type = "Quarantined"      // set aside, since it cannot be read, or harmed the process
	CircuitOpen      Type = "CircuitOpen"      // an endpoint has failed so often that it is left alone for a while
	RateLimited      Type = "RateLimited"      // a bound of ours on calls or writes is used up
	RetryAfter       Type = "RetryAfter"       // the other side has said when to come back
	Forbidden        Type = "Forbidden"        // a right is missing
	Conflict         Type = "Conflict"         // somebody else writes the same again and again
	BackOff          Type = "BackOff"          // it failed, and is tried again later
	SourceStale      Type = "SourceStale"      // what is known is old: list or watch fail
	NotSelected      Type = "NotSelected"      // no selector of the program matches it
	NotLeading       Type = "NotLeading"       // another process leads
	HeldBy           Type = "HeldBy"           // another replica has its slot
	ForeignFinalizer Type = "ForeignFinalizer" // deleted, and kept by a finalizer of somebody else
	QueuedBehind     Type = "QueuedBehind"     // others are before it
	DeadlinePassed   Type = "DeadlinePassed"   // its time is over
	Ended            Type = "Ended"            // nothing is wrong: it is done
	Hidden           Type = "Hidden"           // a cause about an object that the reader may not get
)

// Object names an object of the API server, or a kind of it where Name is empty. The core group has no name.
type Object struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String returns Kind/name or Kind/namespace/name.
func (o Object) String() string {
	s := o.Kind
	for _, part := range []string{o.Namespace, o.Name} {
		if part != "" {
			s += "/" + part
		}
	}
	return s
}

// Cause is one reason why something does not move on.
type Cause struct {
	Type Type `json:"type"`
	// Message is one sentence without markup. It may hold text of others, such as the name of an object or the answer of a
	// server: who shows it escapes it.
	Message string `json:"message"`
	// Since is from when on it holds; zero where nobody knows.
	Since time.Time `json:"since,omitzero"`
	// Until is when it is looked at again, or over, without anything else; zero if never, or not known.
	Until time.Time `json:"until,omitzero"`
	// Evidence is what was seen, by name: "status", "error", "attempts", … Never a secret.
	Evidence map[string]string `json:"evidence,omitempty"`
	// Advice says what can be done; empty if nothing has to be.
	Advice string `json:"advice,omitempty"`
	// About is the object that Message and Evidence tell of, where it is another one than the one that was asked about. Who
	// may not get it is told Hidden instead.
	About *Object `json:"about,omitempty"`
	// Progress says that it is no trouble, but what happens to every such object on its way, and for no longer than it
	// usually takes: nobody has to do anything.
	Progress bool `json:"progress,omitempty"`
	// Depth is how far it is away: 0 for what holds up the object itself, 1 for what holds up the object that it waits for,
	// and so on. What is further away comes later in an answer.
	Depth int `json:"depth,omitempty"`
}

// Failed reports whether the object has ended without success: an Ended cause whose evidence names the phase Failed.
func (c Cause) Failed() bool { return c.Type == Ended && c.Evidence["phase"] == "Failed" }

// MarshalJSON writes the fields of the contract always: null for a time that nobody knows, and evidence that is never null.
func (c Cause) MarshalJSON() ([]byte, error) {
	known := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	if c.Evidence == nil {
		c.Evidence = map[string]string{}
	}
	return json.Marshal(struct { // in the order of the contract
		Type     Type              `json:"type"`
		Message  string            `json:"message"`
		Since    *time.Time        `json:"since"`
		Until    *time.Time        `json:"until"`
		Evidence map[string]string `json:"evidence"`
		Advice   string            `json:"advice"`
		About    *Object           `json:"about,omitempty"`
		Progress bool              `json:"progress,omitempty"`
		Depth    int               `json:"depth,omitempty"`
	}{c.Type, c.Message, known(c.Since), known(c.Until), c.Evidence, c.Advice, c.About, c.Progress, c.Depth})
}

// Beneath returns the causes of an object that another one waits for, as causes of that one: a step deeper, and about
// the object where they name no other. Those that say that nothing is wrong are left out.
func Beneath(of Object, causes []Cause) (all []Cause) {
	for _, c := range causes {
		if c.Type == Ended {
			continue
		}
		c.Depth++
		if c.About == nil {
			c.About = &of
		}
		all = append(all, c)
	}
	return all
}
