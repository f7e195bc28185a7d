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

// Sink is what a source fills for one scope: one namespace, or all of them. All calls for one scope come from one
// goroutine, and none after the scope has stopped. A Sink should return quickly: the connection waits meanwhile.
type Sink interface {
	// Known is what the sink holds already, from an earlier run or from disk. The watch resumes there.
	Known() Known
	// Replace begins an atomic replacement of this scope, which ends by Commit or Abort. One is open at a time.
	Replace() Replacement
	// Apply takes a change of a watch. An error quarantines the object; it never ends the watch. The version of one
	// object never goes down. Where a server swaps events, one may be older than the last one of another object. A Deleted
	// may have any version, since some servers send the object as it was: with the version that is known, or a higher
	// one, it ends the object; with a lower one it is the replay of an earlier deletion. A Deleted without Raw is of an
	// object whose last state cannot be read: what is known of it is its last state.
	Apply(t ChangeType, o *Object) error
	// Bookmark says that everything up to this version has been seen.
	Bookmark(version string)
	// Quarantine takes an object that could not be read or that Apply or Put refused. What is known of it stays known:
	// while a replacement is open, a quarantined key counts as put. It is over when the key is put, removed or deleted,
	// and with the Commit of a replacement in which it was not quarantined again.
	Quarantine(q Quarantined)
	// Report is called whenever phase or reason of the scope changes.
	Report(s Status)
}

// Known is what a sink holds already.
type Known struct {
	Version string // "": nothing
	Count   int
}

// Replacement stages the complete content of a scope. Nothing is visible before Commit.
type Replacement interface {
	// Put stages an object. One with known uid and version costs a comparison. Of a key put twice the newer version
	// counts, whatever its uid; of versions that are equal or cannot be compared, the last.
	Put(o *Object) error
	// Remove unstages an object that was deleted before the initial events of a watch ended, unless it was put in a newer
	// version than that of the deletion. What is put again later is newer.
	Remove(o *Object)
	// Missing is how many known objects have not been put, which Commit will delete, and how many are known.
	Missing() (missing, known int)
	// Commit applies the difference at once.
	Commit(c Commit)
	// Abort forgets what was staged.
	Abort()
}

// Commit is how a replacement is applied.
type Commit struct {
	Version string // of the list
	Epoch   bool   // history was rolled back: one EPOCH, the difference is by uid and content, lower versions are accepted
	Reason  string // why the list was made, for people
}

// Quarantined is an object that the source could not hand over. The bytes belong to the receiver.
type Quarantined struct {
	Namespace, Name, UID, Version string // as far as they could be read
	Err                           error
	Raw                           []byte
	Encoding                      Encoding
	At                            time.Time
}

// Key is the key of the object as people write it.
func (q Quarantined) Key() string {
	if q.Namespace == "" {
		return q.Name
	}
	return q.Namespace + "/" + q.Name
}
