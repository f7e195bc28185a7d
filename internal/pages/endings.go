package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxEndings bounds the entries of a list. Each takes about 100 bytes in a ConfigMap.
	maxEndings = 4096
	// clockSkew is how long an entry outlives its session, because the clocks of replicas differ.
	clockSkew = time.Minute
	// floorKey is the key of endings.Floor in the ConfigMap. It cannot collide with a hash.
	floorKey = "all-until"
)

// endings lists the sessions that were ended early: the SHA-256 of each id, and the regular end of the session. A full
// list drops the entries with the earliest regular end and raises Floor. It may then refuse valid sessions, but never
// accepts one that was ended.
type endings struct {
	Until map[string]time.Time
	Floor time.Time // sessions with a regular end up to it are refused; zero: none
}

// hashOf returns the key of an ended session, from which the id cannot be derived.
func hashOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (e *endings) has(s *Session) bool {
	_, ended := e.Until[hashOf(s.ID)]
	return ended || !s.Until.After(e.Floor)
}

// add records the end of a session, and drops entries of expired sessions.
func (e *endings) add(s *Session, now time.Time) {
	over := func(until time.Time) bool { return now.Sub(until) > clockSkew }
	maps.DeleteFunc(e.Until, func(_ string, until time.Time) bool { return over(until) })
	if over(e.Floor) {
		e.Floor = time.Time{}
	}
	if e.Until == nil {
		e.Until = map[string]time.Time{}
	}
	e.Until[hashOf(s.ID)] = s.Until
	for len(e.Until) > maxEndings {
		var first string
		for hash, until := range e.Until {
			if first == "" || until.Before(e.Until[first]) {
				first = hash
			}
		}
		if e.Floor.Before(e.Until[first]) {
			e.Floor = e.Until[first]
		}
		delete(e.Until, first)
	}
}

// endingsOf parses the data of a ConfigMap. It skips invalid entries.
func endingsOf(data map[string]string) endings {
	e := endings{Until: map[string]time.Time{}}
	for hash, text := range data {
		until, err := time.Parse(time.RFC3339Nano, text)
		switch {
		case err != nil:
		case hash == floorKey:
			e.Floor = until
		case len(hash) == hex.EncodedLen(sha256.Size):
			e.Until[hash] = until
		}
	}
	return e
}

// store writes the list into a ConfigMap.
func (e *endings) store(into *corev1.ConfigMap) {
	into.Data = map[string]string{}
	for hash, until := range e.Until {
		into.Data[hash] = until.UTC().Format(time.RFC3339Nano)
	}
	if !e.Floor.IsZero() {
		into.Data[floorKey] = e.Floor.UTC().Format(time.RFC3339Nano)
	}
}
