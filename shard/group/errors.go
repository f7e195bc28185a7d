package group

import (
	"errors"
	"fmt"
)

// Causes of the end of a slot's context.
var (
	// ErrMoved is the cause where another member is to hold the slot: it was handed over, or the drain bound has passed.
	ErrMoved = errors.New("the slot moves to another member")
	// ErrLost is the cause where it is not certain any more that this member holds the slot: its lease was not renewed in
	// time or was taken, or the group was deleted or edited.
	ErrLost = errors.New("the slot was lost")
	// ErrNotHeld is returned by Fence, and is the cause of Context, for a slot that this member does not hold.
	ErrNotHeld = errors.New("this member does not hold the slot")
)

// What keeps a member from holding slots. Run returns the first two; the others are in Status and in the log as long as
// they last, and are tried again.
var (
	// ErrRole says that the group is one of another role. Nothing was taken or written.
	ErrRole = errors.New("the group has another role")
	// ErrNotGroup says that the Lease of that name is no group. Nothing was taken or written.
	ErrNotGroup = errors.New("the Lease is no group")
	// errRecord says that the record of the group was edited by hand. It is begun anew, unless a program of another
	// version has written it.
	errRecord = errors.New("the record of the group cannot be used")
	// ErrForbidden says that the program may not read or write the Leases of the namespace.
	ErrForbidden = errors.New("no rights on Leases")
	// ErrLayout says that the members of the group have another layout, or another Options.Leader.
	ErrLayout = errors.New("the group has another layout")
	// ErrLeader says that somebody else holds the Lease Options.Leader.
	ErrLeader = errors.New("the program has a leader")
)

// HolderError says that this member does not hold a slot, and who does.
type HolderError struct {
	Slot   int
	Holder string // the name of a member; "": nobody, or it is not known
	Err    error  // ErrNotHeld or ErrLost
}

func (e *HolderError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("slot %d: %v", e.Slot, e.Err)
	}
	return fmt.Sprintf("slot %d: %v: %s does", e.Slot, e.Err, e.Holder)
}

func (e *HolderError) Unwrap() error { return e.Err }

// errBefore says that a group was made anew just now.
var errBefore = errors.New("cannot hold slots yet: the group was made anew, and members may not have noticed")

// errConflict says that what was read is not current any more: to be read and decided again.
var errConflict = errors.New("somebody else was faster")
