package store

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrNotFound is returned for a key that the store does not have.
var ErrNotFound = errors.New("not found")

// ErrClosed is returned after a cursor or a store was closed.
var ErrClosed = errors.New("closed")

// ErrEpoch ends a wait when the server's history was rolled back: the version may never come.
var ErrEpoch = errors.New("the server's history was rolled back")

// ErrNotWatched is returned by waits for a namespace that no scope covers.
var ErrNotWatched = errors.New("not watched")

// ErrNotSaved is returned by Load if there is no usable file: it is missing, damaged, or of another format or identity.
// The store is unchanged, and a source lists as usual.
var ErrNotSaved = errors.New("no usable saved state")

// ErrShardNotSaved is returned by Save for a store of some slots (Options.Shard), because the next run may hold others.
var ErrShardNotSaved = errors.New("the cache holds the objects of some slots only")

// ErrKeepNotSaved is returned by Save for a store with Content.Keep, because the next run may keep other objects whole.
var ErrKeepNotSaved = errors.New("the cache keeps some objects whole by a function (Keep)")

// ErrNoCache is returned by the methods of a nil Cache and of one that NewCache has not made. A runtime whose New has
// failed has such a cache; its Run returns the reason.
var ErrNoCache = errors.New("there is no cache, because its construction failed")

// ErrMetadataOnly is wrapped in the DecodeError for an object of a store of metadata that is read as another type; see
// Content.
var ErrMetadataOnly = errors.New("the store holds the metadata of objects only")

var (
	errNoName    = errors.New("object has no name")
	errBegun     = errors.New("the cache runs already")
	errForeignNS = errors.New("object is not in the namespace of its scope")
)

// DecodeError is returned for an object that cannot be read as the type of the view.
type DecodeError struct {
	Key  Key
	Type reflect.Type
	Err  error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("cannot decode %s as %s: %v", e.Key, e.Type, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }
