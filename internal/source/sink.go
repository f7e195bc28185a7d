package source

import "time"

// ChangeType is the type of a change that a watch reports.
type ChangeType uint8

// The types of changes.
const (
	Added ChangeType = iota + 1
	Modified
	Deleted
)

func (t ChangeType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	case Deleted:
		return "DELETED"
	}
	return "UNKNOWN"
}

// Sink receives the content of one scope: one namespace, or all of them. All calls for a scope come one after the
// other, on any goroutine, and none after the scope has stopped. A Sink should return quickly, because its scope reads
// no events meanwhile.
type Sink interface {
	// Known returns the content that the sink has from an earlier run or from disk. The watch resumes at its version.
	Known() Known
	// Replace begins an atomic replacement of the content, which ends by Commit or Abort. At most one replacement is
	// open at a time.
	Replace() Replacement
	// Apply applies a change of a watch. An error quarantines the object and does not end the watch.
	//
	// The version of one object never goes down. If a server reorders events, a change may be older than the last
	// change of another object. A Deleted may have any version, because some servers send the previous version of the
	// object. At the known or a higher version it deletes the object. At a lower version it is a replay of an earlier
	// deletion. A Deleted without Raw has an unreadable last state. The sink then uses the state that it knows.
	Apply(t ChangeType, o *Object) error
	// Bookmark reports that the sink has received all changes up to version.
	Bookmark(version string)
	// Quarantine receives an object that is unreadable or that Apply or Put rejected. The sink keeps the object's
	// previous state. In an open replacement a quarantined key counts as put. The quarantine ends when the key is put,
	// removed or deleted. It also ends with the Commit of a replacement that did not quarantine the key again.
	Quarantine(q Quarantined)
	// Report is called when phase or reason of the scope changes.
	Report(s Status)
}

// Known describes the content of a sink at the start.
type Known struct {
	Version string // "": no content
	Count   int
}

// Replacement stages the complete content of a scope. Staged objects are not visible before Commit.
type Replacement interface {
	// Put stages an object. If uid and version are known, it costs only a comparison. If a key is put twice, the newer
	// version wins, whatever its uid. If the versions are equal or cannot be compared, the last wins.
	Put(o *Object) error
	// Remove unstages an object that was deleted before the initial events of a watch ended. It has no effect if the
	// staged version is newer than the deletion. A later Put is always newer.
	Remove(o *Object)
	// Missing returns the number of known objects that have not been put, which Commit will delete, and the number of
	// known objects.
	Missing() (missing, known int)
	// Commit applies the difference atomically.
	Commit(c Commit)
	// Abort discards the staged objects.
	Abort()
}

// Commit holds the parameters of Replacement.Commit.
type Commit struct {
	Version string // of the list
	Epoch   bool   // history was rolled back: send one EPOCH, compare by uid and content, accept lower versions
	Reason  string // reason for the list, for people
}

// Quarantined is an object that the source could not apply. The receiver owns the bytes.
type Quarantined struct {
	Namespace, Name, UID, Version string // as far as readable
	Err                           error
	Raw                           []byte
	Encoding                      Encoding
	At                            time.Time
}

// Key returns "namespace/name", or the name of an object without namespace.
func (q Quarantined) Key() string {
	if q.Namespace == "" {
		return q.Name
	}
	return q.Namespace + "/" + q.Name
}
