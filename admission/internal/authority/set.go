package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	prefix     = "ca-"
	certSuffix = ".crt"
	keySuffix  = ".key"
)

// EntryError is an error of one entry of a Secret.
type EntryError struct {
	Entry string // key in the data of the Secret
	Err   error
}

// Error implements error.
func (e *EntryError) Error() string {
	return fmt.Sprintf("cannot use the authority in %q: %v", e.Entry, e.Err)
}

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// Lifetimes are the validity of authorities and certificates, and the times of a change of authority.
type Lifetimes struct {
	Authority, Leaf time.Duration
	// Overlap is how long an authority is trusted beside its successor.
	Overlap time.Duration
	// Settle is how long a new authority waits before it signs, while an older one still signs.
	Settle time.Duration
}

// Set is a set of authorities, oldest first.
type Set []Authority

// Parse reads the data of a Secret: ca-ID.crt, and ca-ID.key for authorities that sign. It skips invalid entries and
// returns their errors, which match [*EntryError], joined. It ignores entries with other names.
func Parse(data map[string][]byte) (Set, error) {
	var (
		set  Set
		errs []error
	)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		id, isCert := strings.CutSuffix(name, certSuffix)
		if keyOf, isKey := strings.CutSuffix(name, keySuffix); isKey && strings.HasPrefix(name, prefix) {
			if _, ok := data[keyOf+certSuffix]; !ok {
				errs = append(errs, &EntryError{name, errors.New("there is no certificate for this key")})
			}
		}
		if !isCert || !strings.HasPrefix(name, prefix) {
			continue
		}
		a, err := parse(data[name], data[id+keySuffix])
		if err != nil {
			errs = append(errs, &EntryError{name, err})
			continue
		}
		set = set.With(a)
	}
	return set, errors.Join(errs...)
}

// Encode returns the data of a Secret with the set and with the unrelated entries of had.
func (s Set) Encode(had map[string][]byte) (map[string][]byte, error) {
	data := map[string][]byte{}
	for name, value := range had {
		if !strings.HasPrefix(name, prefix) {
			data[name] = value
		}
	}
	for _, a := range s {
		data[prefix+a.ID()+certSuffix] = a.certPEM()
		if a.key == nil {
			continue
		}
		key, err := a.keyPEM()
		if err != nil {
			return nil, err
		}
		data[prefix+a.ID()+keySuffix] = key
	}
	return data, nil
}

// With returns the set with another authority. An authority that is already in the set is replaced only if it had no
// key.
func (s Set) With(a Authority) Set {
	s = slices.Clone(s)
	if i := slices.IndexFunc(s, func(b Authority) bool { return b.ID() == a.ID() }); i >= 0 {
		if s[i].key == nil {
			s[i] = a
		}
		return s
	}
	s = append(s, a)
	slices.SortFunc(s, func(a, b Authority) int {
		if c := a.Made().Compare(b.Made()); c != 0 {
			return c
		}
		return strings.Compare(a.ID(), b.ID())
	})
	return s
}

// Bundle returns the certificates of all authorities as PEM.
func (s Set) Bundle() []byte {
	var b []byte
	for _, a := range s {
		b = append(b, a.certPEM()...)
	}
	return b
}

// FromBundle returns the authorities of a bundle, without keys. It skips data that is not an authority.
func FromBundle(bundle []byte) (s Set) {
	for {
		var b *pem.Block
		if b, bundle = pem.Decode(bundle); b == nil {
			return s
		}
		if a, err := parse(pem.EncodeToMemory(b), nil); err == nil {
			s = s.With(a)
		}
	}
}

// Plan describes the changes that a set needs.
type Plan struct {
	Stage bool // a new authority must be created
	Alone bool // no present authority can sign
	Keep  Set  // the authorities that have not expired
}

// Plan returns the changes that the set needs.
func (s Set) Plan(now time.Time, l Lifetimes) Plan {
	p := Plan{Stage: true, Alone: true}
	for _, a := range s {
		if a.Ended(now) {
			continue
		}
		p.Keep = append(p.Keep, a)
		if a.key == nil {
			continue
		}
		p.Alone = p.Alone && !a.Signs(now)
		if now.Before(a.Certificate.NotAfter.Add(-l.Overlap)) {
			p.Stage = false
		}
	}
	return p
}

// Signer returns the authority that signs now: the newest one that has settled, else the oldest one that lasts long
// enough, else the newest one. since maps the ID of each authority to the time from which it is known to be in all
// bundles. settled reports whether all clients can be expected to trust the authority.
func (s Set) Signer(now time.Time, l Lifetimes, since map[string]time.Time) (signer Authority, settled, ok bool) {
	for _, a := range slices.Backward(s) {
		if !a.Signs(now) {
			continue
		}
		if at, known := since[a.ID()]; len(s) == 1 || known && !now.Before(at.Add(l.Settle)) {
			return a, true, true
		}
		if !ok || now.Add(l.Settle).Before(a.Certificate.NotAfter) {
			signer, ok = a, true
		}
	}
	return signer, false, ok
}

// Renew reports whether the served certificate must be replaced by one of the signer. That is so if there is none, it
// is due, its authority is no longer trusted, or a settled authority has taken over.
func (s Set) Renew(now time.Time, leaf *x509.Certificate, signer Authority, settled bool) bool {
	if leaf == nil || !now.Before(due(leaf)) {
		return true
	}
	if signer.Signed(leaf) {
		return false
	}
	return settled || !slices.ContainsFunc(s, func(a Authority) bool { return a.Signed(leaf) })
}

// due returns the time at which two thirds of a certificate's validity are over.
func due(leaf *x509.Certificate) time.Time {
	made := leaf.NotBefore.Add(Backdate)
	return made.Add(leaf.NotAfter.Sub(made) / 3 * 2)
}
