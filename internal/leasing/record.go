package leasing

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrDeleted means that the Lease was deleted since this process last read or wrote it. There may be another one of the
// same name.
var ErrDeleted = errors.New("the lease was deleted")

// Record is a Lease that this process writes, one version after the other. Only one goroutine may use it at a time.
type Record struct {
	Client *Client
	Name   string

	last *Lease
}

// Last returns the version that was last read or written, or nil. It is read-only.
func (r *Record) Last() *Lease { return r.last }

// Read reads the Lease.
func (r *Record) Read(ctx context.Context) error {
	got, err := r.Client.Get(ctx, r.Name)
	if err == nil {
		r.last = got
	}
	return err
}

// Create creates the Lease with the content that fill sets.
func (r *Record) Create(ctx context.Context, fill func(*Lease)) error {
	l := &Lease{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Client.namespace}}
	fill(l)
	got, err := r.Client.Create(ctx, l)
	if err == nil {
		r.last = got
	}
	return err
}

// Update writes the last version with the changes of fill.
func (r *Record) Update(ctx context.Context, fill func(*Lease)) error {
	next := r.last.DeepCopy()
	fill(next)
	got, err := r.Client.Update(ctx, next)
	switch {
	case err != nil:
		return err
	case got.UID != next.UID:
		return ErrDeleted
	}
	r.last = got
	return nil
}

// Renew is Update for the holder of the Lease. If there is another version, Renew reads it and returns ErrConflict.
// That version may be of a renewal whose response was lost, of another process, or of an edit by hand. Renew returns
// ErrDeleted if the Lease does not exist any more.
func (r *Record) Renew(ctx context.Context, fill func(*Lease)) error {
	err := r.Update(ctx, fill)
	if !errors.Is(err, ErrConflict) && !apierrors.IsNotFound(err) {
		return err
	}
	got, err := r.Client.Get(ctx, r.Name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && got.UID != r.last.UID:
		return ErrDeleted
	case err != nil:
		return err
	}
	r.last = got
	return ErrConflict
}
