package store

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrNotFound is returned for a key that the store does not have.
var ErrNotFound = errors.New("not found")

// ErrClosed is returned when a cursor or a store is used after it was closed.
var ErrClosed = errors.New("closed")

// ErrEpoch is the reason why a wait ends when the server's history went back: the version may never come.
var ErrEpoch = errors.New("the server's history was rolled back")

// ErrNotWatched is returned by waits for a namespace that no scope covers.
var ErrNotWatched = errors.New("not watched")

// ErrNotSaved is returned by Load when there is nothing that can be used: no file, one of another format or identity,
// or a damaged one. The store is unchanged, and a source lists as usual.
var ErrNotSaved = errors.New("no usable saved state")

// ErrShardNotSaved is returned by Save for a store of some slots (Options.Shard): the next run may hold others.
var ErrShardNotSaved = errors.New("it holds the objects of some slots only")

// ErrNoCache is matched by all that is done with a nil Cache, as that of a runtime is whose New has failed; its Run
// says with what.
var ErrNoCache = errors.New("there is no cache: what should have made it has failed")

// ErrMetadataOnly is wrapped in the DecodeError of an object that a store holds the metadata of, and that is read as
// something else; see Content.
var ErrMetadataOnly = errors.New("the store holds the metadata of objects only")

var (
	errNoName    = errors.New("object has no name")
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
