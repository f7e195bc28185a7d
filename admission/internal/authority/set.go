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

// EntryError says what is wrong with one entry of a Secret.
type EntryError struct {
	Entry string // of the data
	Err   error
}

// Error implements error.
func (e *EntryError) Error() string {
	return fmt.Sprintf("cannot use the authority in %q: %v", e.Entry, e.Err)
}

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// Lifetimes say how long things are valid, and how long before its end an authority is followed by the next one.
type Lifetimes struct {
	Authority, Leaf time.Duration
	// Overlap is for how long an authority is trusted beside its successor.
	Overlap time.Duration
	// Settle is how long a new authority waits, while an older one still signs.
	Settle time.Duration
}

// Set is the authorities that there are, the oldest first.
type Set []Authority

// Parse reads the data of a Secret: ca-ID.crt and, of those that sign, ca-ID.key. What cannot be used is left out and
// told: errors that match [*EntryError], joined. Entries of other names are passed over.
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

// Encode returns the data of a Secret that has the set, and what else it had.
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

// With returns the set with another authority. One that is there already stays as it is, unless it had no key.
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

// Bundle returns the certificates of all of them, as PEM.
func (s Set) Bundle() []byte {
	var b []byte
	for _, a := range s {
		b = append(b, a.certPEM()...)
	}
	return b
}

// FromBundle returns the authorities of a bundle, which are only trusted. What is none is passed over.
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

// Plan is what is due with a set.
type Plan struct {
	Stage bool // there has to be a new authority
	Alone bool // none of those that there are can sign
	Keep  Set  // those that have not ended
}

// Plan says what is due.
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

// Signer returns the authority that signs now: the newest one that has settled, else the oldest one that goes on for
// long enough, else the newest one. Since says from when on each, by its ID, is known to be in all bundles. Settled
// says whether all who check certificates can be expected to know of it.
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

// Renew says whether the certificate that is served has to be replaced by one of the signer: it has none, it is due,
// its authority is not trusted any more, or a settled one has taken over.
func (s Set) Renew(now time.Time, leaf *x509.Certificate, signer Authority, settled bool) bool {
	if leaf == nil || !now.Before(due(leaf)) {
		return true
	}
	if signer.Signed(leaf) {
		return false
	}
	return settled || !slices.ContainsFunc(s, func(a Authority) bool { return a.Signed(leaf) })
}

// due is when two thirds of the time of a certificate are over.
func due(leaf *x509.Certificate) time.Time {
	made := leaf.NotBefore.Add(Backdate)
	return made.Add(leaf.NotAfter.Sub(made) / 3 * 2)
}
