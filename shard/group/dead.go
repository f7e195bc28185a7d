package group

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// deadMembers returns the members of a record that have certainly stopped. It marks the Leases of members that have not
// renewed them for their duration.
func (m *memberLoop) deadMembers(r *record) (dead []string) {
	var errs error
	for _, other := range r.members {
		if other.ID == m.t.id || slices.Contains(m.dead, other.ID) {
			continue
		}
		is, err := m.checkDead(m.g.leaseOf(other.ID))
		errs = errors.Join(errs, err)
		if is {
			dead = append(dead, other.ID)
		}
	}
	if m.t.ctx.Err() == nil {
		m.g.setError("mark dead members", errs)
	}
	return dead
}

func (m *memberLoop) checkDead(name string) (bool, error) {
	g := m.g
	s, ok := g.view.get(name)
	if !ok {
		if d, known := g.view.absentFor(name); known && d < g.opt.Duration {
			return false, nil
		}
		got, err := g.leases.Get(m.t.ctx, name)
		if apierrors.IsNotFound(err) {
			d, known := g.view.absentFor(name)
			g.view.setAbsent(name, "")
			return known && d >= g.opt.Duration, nil // its holder has stopped by now
		}
		if err == nil {
			g.view.saw(got)
		}
		return false, err
	}
	if s.Lease().Annotations[deadAnnotation] != "" {
		return true, nil
	}
	if s.Unchanged(g.clock.Now()) < g.opt.Duration {
		return false, nil
	}
	mark := s.Lease().DeepCopy()
	metav1.SetMetaDataAnnotation(&mark.ObjectMeta, deadAnnotation, g.opt.Member+" ("+m.t.id+")")
	got, err := g.leases.Update(m.t.ctx, mark)
	if err == nil {
		g.view.saw(got)
		return true, nil
	}
	if got, readErr := g.leases.Get(m.t.ctx, name); readErr == nil { // this or another member may have marked it
		g.view.saw(got)
		return got.Annotations[deadAnnotation] != "", nil
	} else if apierrors.IsNotFound(readErr) {
		g.view.setAbsent(name, "")
		return false, nil
	}
	return false, err
}

// clean deletes Leases that belong to no member of the record and are dead or no longer renewed.
func (m *memberLoop) clean(r *record) {
	m.g.view.forget(func(name string) bool {
		return r.member(strings.TrimPrefix(name, m.g.opt.Name+"-")) == nil
	})
	for _, s := range m.g.view.all() {
		id, ok := strings.CutPrefix(s.Lease().Name, m.g.opt.Name+"-")
		if !ok || r.member(id) != nil || id == m.t.id {
			continue
		}
		if s.Lease().Annotations[deadAnnotation] == "" && s.Unchanged(m.g.clock.Now()) < m.g.opt.Duration {
			continue
		}
		switch err := m.g.leases.Delete(m.t.ctx, s.Lease().Name, s.Lease().UID, s.Lease().ResourceVersion); {
		case err == nil:
			m.g.view.setAbsent(s.Lease().Name, "")
		case errors.Is(err, leasing.ErrConflict):
			if got, err := m.g.leases.Get(m.t.ctx, s.Lease().Name); err == nil {
				m.g.view.saw(got)
			}
		}
	}
}
