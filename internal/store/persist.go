package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fairlead-io/fairlead/internal/savefile"
	"github.com/fairlead-io/fairlead/internal/source"
)

// A saved store is one file (package internal/savefile): the scopes with their versions, and the encoded objects of
// each.

// resumeWithin is the maximum age of a file from which a watch resumes. A server keeps its history for some minutes, so
// a list is needed anyway after a longer time. In that time the cluster may also have been restored from a backup, or
// set up again, and have passed the saved version. A watch from that version would work, but miss earlier changes. An
// older file is still loaded, so that subscribers learn which objects are gone.
const resumeWithin = time.Hour

// saveFormat returns the format of the files of the stores of one cluster.
func saveFormat(identity string) savefile.Format {
	return savefile.Format{Magic: "fairlead store 1\n", Identity: identity}
}

// Save writes the base state, without the overlay, to a file in dir, from which Load resumes. identity identifies the
// cluster: Load refuses the state of another one. Save returns ErrShardNotSaved for a store of some slots, and
// ErrKeepNotSaved for a store with Content.Keep.
func (s *Store) Save(dir, identity string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot save store: %w", err)
		}
	}()
	if dir == "" { // an empty dir would be the working directory
		return errNoDirectory
	}
	if s.opt.Shard != "" { // the next run may hold other slots
		return ErrShardNotSaved
	}
	if s.opt.Content.Keep != nil { // the next run may have another function
		return ErrKeepNotSaved
	}
	return s.opt.saveFormat(identity).Write(filepath.Join(dir, s.opt.fileName()), s.encode)
}

// saveFormat returns the format of the file of a store. The content is part of the identity, so that Load refuses a
// file of another content.
func (o *Options) saveFormat(identity string) savefile.Format {
	if content := o.Content.name(); content != "" {
		identity += "\n" + content
	}
	return saveFormat(identity)
}

// fileName returns the name of the store's file: the resource, and hashes that distinguish its stores.
func (o *Options) fileName() string {
	return o.fileBase(o.Scope) + hashed(".", o.Content.name()) + fileSuffix
}

const fileSuffix = ".store"

// fileBase returns the common part of the names of files that differ only in content.
func (o *Options) fileBase(scope string) string {
	r, whole := o.Resource, *o
	whole.Content, whole.Scope = Content{}, scope
	name := fmt.Sprintf("%s.%s.%s", r.Resource, r.Version, r.Group)
	if sel := whole.distinction(); sel != "" {
		name += hashed("-", sel+"\n"+scope)
	}
	return name
}

// hashed returns a hash of text behind a prefix, or "" for an empty text.
func hashed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
}

// savedScope is one scope at the version of a state.
type savedScope struct{ ns, version string }

// encode writes the base state.
func (s *Store) encode(out *savefile.Encoder) error {
	base, scopes := s.intake.saved()
	out.Number(uint64(len(scopes)))
	for _, sc := range scopes {
		out.Text(sc.ns)
		out.Text(sc.version)
		n := 0
		for range base.inScope(sc.ns) {
			n++
		}
		out.Number(uint64(n))
		for r := range base.inScope(sc.ns) {
			e, err := r.load()
			if err != nil {
				return err
			}
			out.Number(uint64(e.enc))
			out.Field(e.raw)
		}
	}
	return nil
}

// Load fills an empty store from the file that Save wrote. The source resumes its watch at the saved version, or lists
// the difference if the file is older than an hour. The store counts as synced only after the source reports that it
// has caught up with the server. The caller must drop saved scopes that are not watched any more (DropScope).
func (s *Store) Load(dir, identity string) error {
	return s.loadScopes(dir, identity, func(string) bool { return true })
}

var errNoDirectory = errors.New("no directory is given")

func (s *Store) loadScopes(dir, identity string, wanted func(namespace string) bool) error {
	if dir == "" {
		return fmt.Errorf("cannot load store: %w: %w", ErrNotSaved, errNoDirectory)
	}
	if s.opt.Content.Keep != nil {
		return fmt.Errorf("cannot load store: %w: %w", ErrNotSaved, ErrKeepNotSaved)
	}
	path := filepath.Join(dir, s.opt.fileName())
	l := &loading{store: s, wanted: wanted}
	at, err := s.opt.saveFormat(identity).Read(path, func(in *savefile.Decoder) error {
		return decodeScopes(in, l.scope)
	})
	if err != nil {
		l.abort()
		return fmt.Errorf("cannot load store: %w: %w", ErrNotSaved, err)
	}
	l.commit(time.Since(at) > resumeWithin)
	return nil
}

// loading stages the scopes of a file, one object at a time, and applies all of them or none.
type loading struct {
	store  *Store
	wanted func(namespace string) bool
	scopes []loadedScope
}

type loadedScope struct {
	savedScope
	*replacement
	made bool // the scope is new
}

// scope returns the function that takes the objects of a scope.
func (l *loading) scope(sc savedScope) (put func(*source.Object) error) {
	if !l.wanted(sc.ns) {
		return func(*source.Object) error { return nil }
	}
	made := !l.store.isWatched(sc.ns)
	r := l.store.Sink(sc.ns).Replace().(*replacement)
	r.saved = true
	l.scopes = append(l.scopes, loadedScope{sc, r, made})
	return r.Put
}

func (l *loading) commit(old bool) {
	for _, sc := range l.scopes {
		if old {
			sc.version = ""
		}
		sc.Commit(source.Commit{Version: sc.version, Reason: "saved state"})
	}
}

func (l *loading) abort() {
	for _, sc := range l.scopes {
		sc.Abort()
		if sc.made {
			l.store.DropScope(sc.ns)
		}
	}
}

// decodeScopes decodes the output of encode. It trusts no length. The objects are valid during the call that takes
// them.
func decodeScopes(in *savefile.Decoder, scope func(savedScope) (put func(*source.Object) error)) error {
	var o source.Object
	for range in.Number() {
		sc := savedScope{ns: in.Text(), version: in.Text()}
		n := in.Number()
		if in.Err() != nil {
			return in.Err()
		}
		put := scope(sc)
		for range n {
			o.Encoding, o.Raw = source.Encoding(in.Number()), in.Field()
			if in.Err() != nil {
				return in.Err()
			}
			if o.Encoding > source.Protobuf {
				return savefile.ErrDamaged
			}
			if err := source.Scan(o.Encoding, o.Raw, &o.Header); err != nil {
				return err
			}
			if err := put(&o); err != nil {
				return err
			}
		}
	}
	return in.Err()
}
