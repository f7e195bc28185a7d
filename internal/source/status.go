package source

import "time"

// Phase is what a scope is doing.
type Phase string

// The phases.
const (
	Connecting Phase = "Connecting" // a request is out, nothing has come yet; the reason says what for
	Listing    Phase = "Listing"    // the content is being fetched
	Watching   Phase = "Watching"   // changes arrive, or would: see ReasonNoSlots
	Degraded   Phase = "Degraded"   // it does not work at present; it is tried again
	Stopped    Phase = "Stopped"
)

// Reason is why a scope is in its phase.
type Reason string

// The reasons.
const (
	ReasonWatching     Reason = "Watching"
	ReasonListing      Reason = "Listing"
	ReasonDisconnected Reason = "Disconnected" // no connection, or it broke: network, DNS, TLS
	ReasonStalled      Reason = "Stalled"      // a request without answer or progress
	// a watch that brings nothing while the server moves on; Connecting: it is resumed to see
	ReasonSilent          Reason = "Silent"
	ReasonExpired         Reason = "Expired"         // 410: the history since our version is gone
	ReasonTooManyRequests Reason = "TooManyRequests" // 429
	ReasonUnauthorized    Reason = "Unauthorized"    // 401
	ReasonForbidden       Reason = "Forbidden"       // 403
	ReasonNotFound        Reason = "NotFound"        // 404: the resource is not served, or not yet
	ReasonProtocolError   Reason = "ProtocolError"   // the answer is not what was asked for
	ReasonServerError     Reason = "ServerError"     // any other refusal
	ReasonEnded           Reason = "Ended"           // of Stopped: the source was told to end
	// No slot is held (Config.Shard): nothing is asked for. Connecting: nor is it known yet what will be held.
	ReasonNoSlots Reason = "NoSlots"
)

// Status is the condition of one scope.
type Status struct {
	Namespace string // "" for all
	Phase     Phase
	Reason    Reason
	// the server's own words where there are any; while Watching, how many objects cannot be read since the last list
	Message     string
	Err         error     // what is wrong, or made it list again; nil when all is well
	Since       time.Time // of this phase and reason
	LastContact time.Time // when the server last said something that this scope could use; zero: never
	// LastRefusal is when the server last answered that it does not serve the resource, or that the caller has no right
	// to it; zero: never.
	LastRefusal time.Time
	Next        time.Time // when it is tried again; zero or before now: nothing is waited for
	Version     string    // last version seen
	// A complete list has been applied, or one of an earlier run has been caught up with, or there was nothing to be
	// listed since no slot is held. It stays so when slots come.
	Synced   bool
	Counters Counters
}

// Counters count since the source was made.
type Counters struct {
	Lists       int64 // complete lists applied
	ListErrors  int64 // lists given up or refused
	Watches     int64 // watches opened
	Retries     int64 // waits for another try
	Events      int64 // changes handed to the sink
	Bookmarks   int64
	Suppressed  int64 // replayed or older changes
	Quarantined int64
	Probes      int64
	Epochs      int64

	// What came from the server: objects of lists and initial events, changes of watches, and the bytes of both as they
	// were unpacked. Filtered is what of it is of slots that are not held (Config.Shard).
	WireObjects, WireEvents, WireBytes             int64
	FilteredObjects, FilteredEvents, FilteredBytes int64
}

// Staleness is for how long nothing has confirmed what is cached. It is zero while the scope has never been in contact;
// ask Synced for that.
func (s Status) Staleness(now time.Time) time.Duration {
	if s.LastContact.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.LastContact))
}

// Refused reports whether the server has refused the resource since it last confirmed what is cached: it does not serve the
// resource, or the caller has no right to it. A new connection or a restart does not change that.
func (s Status) Refused() bool { return s.LastRefusal.After(s.LastContact) }

// Silence is for how long the server has neither confirmed what is cached nor refused it. It is zero while the server has
// done neither.
func (s Status) Silence(now time.Time) time.Duration {
	if s.Refused() {
		return max(0, now.Sub(s.LastRefusal))
	}
	return s.Staleness(now)
}
