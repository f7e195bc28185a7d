package source

import "time"

// Phase is the current activity of a scope.
type Phase string

// The phases.
const (
	Connecting Phase = "Connecting" // a request is pending; the reason gives its purpose
	Listing    Phase = "Listing"    // the content is being listed
	Watching   Phase = "Watching"   // the watch is open; see also ReasonNoSlots
	Degraded   Phase = "Degraded"   // requests fail and are retried
	Stopped    Phase = "Stopped"
)

// Reason explains the phase of a scope.
type Reason string

// The reasons.
const (
	ReasonWatching     Reason = "Watching"
	ReasonListing      Reason = "Listing"
	ReasonDisconnected Reason = "Disconnected" // no connection or a broken one: network, DNS, TLS
	ReasonStalled      Reason = "Stalled"      // a request without response or progress
	// A watch receives no events while the server's version advances. With Connecting: the watch is being resumed.
	ReasonSilent          Reason = "Silent"
	ReasonExpired         Reason = "Expired"         // 410: the version seen has expired
	ReasonTooManyRequests Reason = "TooManyRequests" // 429
	ReasonUnauthorized    Reason = "Unauthorized"    // 401
	ReasonForbidden       Reason = "Forbidden"       // 403
	ReasonNotFound        Reason = "NotFound"        // 404: the server does not serve the resource (yet)
	ReasonProtocolError   Reason = "ProtocolError"   // the response is not a list or watch
	ReasonServerError     Reason = "ServerError"     // any other error of the server
	ReasonEnded           Reason = "Ended"           // with Stopped: the source has ended
	// No slot is held, so no requests are made (Config.Shard). With Connecting: the slots are not known yet.
	ReasonNoSlots Reason = "NoSlots"
)

// Status is the condition of one scope.
type Status struct {
	Namespace string // "" for all
	Phase     Phase
	Reason    Reason
	// Message is the server's message if there is one. While Watching, it is the number of unreadable objects since the
	// last list.
	Message string
	Err     error     // current fault, or the cause of the list; nil if there is none
	Since   time.Time // start of this phase and reason
	// LastContact is the time of the last useful response for this scope, or the last time that it began or ceased to
	// hold no slots, when there is nothing to confirm; zero: never.
	LastContact time.Time
	// LastRefusal is the time of the last response that the resource is not served or not permitted; zero: never.
	LastRefusal time.Time
	Next        time.Time // next attempt; zero or in the past: no wait
	Version     string    // last version seen
	// Synced is set once a complete list has been applied, the content of an earlier run is up to date, or no slot is
	// held. It stays set when slots are gained.
	Synced   bool
	Counters Counters
}

// Counters holds counts since the source was made.
type Counters struct {
	Lists       int64 // complete lists applied
	ListErrors  int64 // lists that failed, also those that came as the initial events of a watch
	Watches     int64 // watches opened
	Retries     int64 // waits before a retry
	Events      int64 // changes passed to the sink
	Bookmarks   int64
	Suppressed  int64 // replayed or older changes
	Quarantined int64
	Probes      int64
	Epochs      int64

	// Received from the server: objects of lists and initial events, changes of watches, and the uncompressed bytes of
	// both. Filtered is the part that belongs to slots that are not held (Config.Shard).
	WireObjects, WireEvents, WireBytes             int64
	FilteredObjects, FilteredEvents, FilteredBytes int64
}

// Staleness returns the time since the server last confirmed the cached content. It returns zero before the first
// contact (see Synced) and for a scope without slots, which makes no requests and holds nothing that could be stale.
func (s Status) Staleness(now time.Time) time.Duration {
	if s.LastContact.IsZero() || s.Reason == ReasonNoSlots {
		return 0
	}
	return max(0, now.Sub(s.LastContact))
}

// Refused reports whether the server has rejected the resource since it last confirmed the cached content. It does not
// serve the resource, or the caller lacks the permission. A new connection or a restart does not help.
func (s Status) Refused() bool { return s.LastRefusal.After(s.LastContact) }

// Silence returns the time since the server last confirmed the cached content or refused the resource. It returns zero
// before either.
func (s Status) Silence(now time.Time) time.Duration {
	if s.Refused() {
		return max(0, now.Sub(s.LastRefusal))
	}
	return s.Staleness(now)
}
