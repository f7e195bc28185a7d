package why

import (
	"encoding/json"
	"time"
)

// Type is the kind of a cause. Programs may define their own types.
type Type string

// The types of causes that the library reports.
const (
	Parked           Type = "Parked"           // a flow waits at a step: for a condition, a call or an answer
	LockHeld         Type = "LockHeld"         // another operation must finish first
	WebhookMissing   Type = "WebhookMissing"   // the Webhook to call does not exist
	NotReleased      Type = "NotReleased"      // the owner has not released credentials or a target
	Quarantined      Type = "Quarantined"      // excluded, because the object cannot be read or has harmed the process
	CircuitOpen      Type = "CircuitOpen"      // an endpoint has failed repeatedly, and calls to it are suspended
	RateLimited      Type = "RateLimited"      // a local limit on calls or writes is reached
	RetryAfter       Type = "RetryAfter"       // the other side has said when to retry
	Forbidden        Type = "Forbidden"        // a right is missing
	Conflict         Type = "Conflict"         // another writer repeatedly changes the same fields
	BackOff          Type = "BackOff"          // an attempt failed, and is retried later
	SourceStale      Type = "SourceStale"      // the known state is old, because list or watch fail
	NotSelected      Type = "NotSelected"      // no selector of the program matches the object
	NotLeading       Type = "NotLeading"       // another process is the leader
	HeldBy           Type = "HeldBy"           // another replica holds the slot of the object
	ForeignFinalizer Type = "ForeignFinalizer" // deleted, but kept by a finalizer of another program
	QueuedBehind     Type = "QueuedBehind"     // other work is ahead in the queue
	DeadlinePassed   Type = "DeadlinePassed"   // a deadline has passed
	Ended            Type = "Ended"            // the work has ended
	Hidden           Type = "Hidden"           // a cause about an object that the reader has no right to get
)

// Object identifies an object of the API server, or a kind if Name is empty. The group of the core API is "".
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

// Cause is one reason why an object makes no progress.
type Cause struct {
	Type Type `json:"type"`
	// Message is one sentence without markup. It may contain text from other systems, such as the name of an object or
	// the answer of a server. Code that displays it must escape it.
	Message string `json:"message"`
	// Since is when the cause began to hold; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Until is when the object is checked again, or the cause ends, without an event; zero if never or unknown.
	Until time.Time `json:"until,omitzero"`
	// Evidence has the observed values by name, such as "status", "error" or "attempts". It must not contain secrets.
	Evidence map[string]string `json:"evidence,omitempty"`
	// Advice says what to do; empty if no action is needed.
	Advice string `json:"advice,omitempty"`
	// About is the object that Message and Evidence describe, if it differs from the requested object. A reader without
	// the right to get it sees Hidden instead.
	About *Object `json:"about,omitempty"`
	// Progress reports that the cause is a normal part of the work and has not lasted longer than usual. No action is
	// needed.
	Progress bool `json:"progress,omitempty"`
	// Depth is the distance from the object: 0 for a cause of the object itself, 1 for a cause of an object that it
	// waits for, and so on. Greater depths come later in an answer.
	Depth int `json:"depth,omitempty"`
}

// Failed reports whether the object has ended without success. That is an Ended cause whose evidence names the phase
// Failed.
func (c Cause) Failed() bool { return c.Type == Ended && c.Evidence["phase"] == "Failed" }

// MarshalJSON always writes the fields of the JSON contract. An unknown time is null, and evidence is never null.
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

// Beneath converts the causes of an object to causes of another object that waits for it. It increments Depth, and sets
// About to the object if it is nil. It leaves out Ended causes.
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
