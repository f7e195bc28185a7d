package group

import (
	"errors"
	"fmt"
)

// Causes of the end of the contexts of Gain and Lose of a [Participant].
var (
	// ErrMoved is the cause when another member is the target of the slot: the slot was handed over, or the drain bound
	// has passed.
	ErrMoved = errors.New("the slot moves to another member")
	// ErrLost is the cause when this member may no longer hold the slot. Its Lease was not renewed in time or was marked
	// dead, or the group was deleted or edited.
	ErrLost = errors.New("the slot was lost")
	// ErrNotHeld is returned by [Group.Fence] for a slot that this member does not hold.
	ErrNotHeld = errors.New("this member does not hold the slot")
)

// Reasons why a member holds no slots. Run returns the first two, and ErrProgram. Status and the log have the others
// while they last, and the member retries.
var (
	// ErrRole means that the group has another role. The member has written nothing.
	ErrRole = errors.New("the group has another role")
	// ErrNotGroup means that the Lease of that name is not a group. The member has written nothing.
	ErrNotGroup = errors.New("the Lease is not a group")
	// errRecord means that the record of the group was edited by hand. The group is deleted and created again, unless a
	// program of another version has written it.
	errRecord = errors.New("the record of the group cannot be used")
	// ErrForbidden means that the program may not read or write the Leases of the namespace.
	ErrForbidden = errors.New("no permission for Leases")
	// ErrLayout means that the members of the group have another layout, or another Options.Leader.
	ErrLayout = errors.New("the group has another layout")
	// ErrLeader means that another holder has the Lease Options.Leader.
	ErrLeader = errors.New("the program has a leader")
)

// isRefusal reports whether an error of a step ends Run.
func isRefusal(err error) bool {
	return errors.Is(err, ErrRole) || errors.Is(err, ErrNotGroup) || errors.Is(err, ErrProgram)
}

// HolderError is the error for a slot that this member does not hold. It names the holder.
type HolderError struct {
	Slot   int
	Holder string // name of the member; "" if there is none or it is not known
	Err    error  // ErrNotHeld or ErrLost
}

func (e *HolderError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("slot %d: %v", e.Slot, e.Err)
	}
	return fmt.Sprintf("slot %d: %v: %s does", e.Slot, e.Err, e.Holder)
}

func (e *HolderError) Unwrap() error { return e.Err }

// errRecreated means that the group was created again recently. Members keep the slots that they have.
var errRecreated = errors.New(
	"slots without a holder wait: the group was recreated, and other members may not know it yet")

// ErrProgram means that a member of the group runs another program, or works in other namespaces. The work of one of
// them would stay undone in the slots of the other.
var ErrProgram = errors.New("the group has another program")

// errStopped means that a member of another program has not renewed its Lease since this one started. It may have
// stopped, so this member waits.
var errStopped = errors.New("another program has the group, or has had it")
