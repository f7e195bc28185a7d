package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/fairlead-io/fairlead/source"
)

// A saved store is one file: a magic line, then an s2 stream of the identity, the scopes with their versions, and the
// encoded objects of each, every field with its length before it; at the end of the file is the CRC-32C of all before
// it. It is written beside the old one and renamed, so that a crash leaves the old one or the new one.

// resumeWithin is how old a file may be for a watch to go on from it. A server keeps its history for some minutes, so
// that a list is due anyhow after a longer time, in which a cluster may also have been restored from a backup, or set
// up anew, and have passed the saved version: a watch from there would look right and miss what came before. What is
// saved is used all the same, to tell subscribers of what has gone meanwhile.
const resumeWithin = time.Hour

const (
	saveMagic = "fairlead store 1\n"
	// maxSavedField bounds what a damaged length can make Load allocate at once.
	maxSavedField = 64 << 20
)

// Save writes what the server has told, not the overlay, to a file in dir, from which Load resumes. identity is to be
// of the cluster: Load refuses the state of another one.
func (s *Store) Save(dir, identity string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot save store: %w", err)
		}
	}()
	if dir == "" { // the working directory is nobody's intention
		return errNoDirectory
	}
	f, err := os.CreateTemp(dir, s.opt.fileName()+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buf := bufio.NewWriterSize(f, 1<<16)
	err = s.write(io.MultiWriter(buf, sum), identity)
	if err == nil {
		err = errors.Join(writeSum(buf, sum), buf.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, s.opt.fileName()))
}

func writeSum(w io.Writer, sum hash.Hash32) error {
	return binary.Write(w, binary.LittleEndian, sum.Sum32())
}

// fileName is of the resource and what tells its stores apart.
func (o *Options) fileName() string {
	r := o.Resource
	name := fmt.Sprintf("%s.%s.%s", r.Resource, r.Version, r.Group)
	if sel, scope := o.distinction(), o.Scope; sel != "" || scope != "" {
		name += fmt.Sprintf("-%x", sha256.Sum256([]byte(sel+"\n"+scope)))[:17]
	}
	return name + ".store"
}

// savedScope is one scope at the version of a state.
type savedScope struct{ ns, version string }

func (s *Store) write(w io.Writer, identity string) error {
	s.mu.Lock() // the versions belong to the state
	var scopes []savedScope
	for ns, sc := range s.scopes {
		if sc.committed {
			scopes = append(scopes, savedScope{ns, sc.version.String()})
		}
	}
	base := s.root.Load().base
	s.mu.Unlock()
	if _, err := io.WriteString(w, saveMagic); err != nil {
		return err
	}
	z := s2.NewWriter(w, s2.WriterConcurrency(1))
	out := fieldWriter{w: z}
	out.text(identity)
	out.number(uint64(len(scopes)))
	for _, sc := range scopes {
		out.text(sc.ns)
		out.text(sc.version)
		n := 0
		for range base.inScope(sc.ns) {
			n++
		}
		out.number(uint64(n))
		for r := range base.inScope(sc.ns) {
			raw, err := r.load()
			if err != nil {
				return errors.Join(err, z.Close())
			}
			out.number(uint64(r.enc))
			out.field(raw)
		}
	}
	return errors.Join(out.err, z.Close())
}

// Load fills an empty store from what Save wrote, so that a source resumes its watch at the saved version, or lists
// the difference if the file is older than an hour. It counts as synced when the source says that it has caught up
// with the server, not before: what was saved is as old as the file. Scopes that were saved and are not watched any
// more are to be dropped by the caller (DropScope).
func (s *Store) Load(dir, identity string) error {
	return s.loadScopes(dir, identity, func(string) bool { return true })
}

var errNoDirectory = errors.New("no directory is given")

func (s *Store) loadScopes(dir, identity string, wanted func(namespace string) bool) error {
	if dir == "" {
		return fmt.Errorf("cannot load store: %w: %w", ErrNotSaved, errNoDirectory)
	}
	path := filepath.Join(dir, s.opt.fileName())
	removeLeftovers(path)
	l := &loading{store: s, wanted: wanted}
	at, err := l.read(path, identity)
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
	made bool // it was not known before
}

// scope returns what takes the objects of a scope.
func (l *loading) scope(sc savedScope) (put func(*source.Object) error) {
	if !l.wanted(sc.ns) {
		return func(*source.Object) error { return nil }
	}
	l.store.mu.Lock()
	made := l.store.scopes[sc.ns] == nil
	l.store.mu.Unlock()
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

// removeLeftovers removes the files of saves that a crash has ended.
func removeLeftovers(path string) {
	dir, name := filepath.Split(path)
	files, _ := os.ReadDir(dir) // what is wrong with it, reading the file tells
	for _, f := range files {
		if strings.HasPrefix(f.Name(), name+".") {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

func (l *loading) read(path, identity string) (at time.Time, err error) {
	f, err := os.Open(path)
	if err != nil {
		return at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if err := checkSum(f, info.Size(), sum); err != nil {
		return at, err
	}
	return info.ModTime(), readSaved(io.LimitReader(f, info.Size()-crc32.Size), identity, l.scope)
}

var errDamaged = errors.New("the file is damaged")

// checkSum reads the whole file once, before anything of it is believed, and goes back to its start.
func checkSum(f io.ReadSeeker, size int64, sum hash.Hash32) error {
	if size < crc32.Size {
		return errDamaged
	}
	if _, err := io.Copy(sum, io.LimitReader(f, size-crc32.Size)); err != nil {
		return err
	}
	var want uint32
	if err := binary.Read(f, binary.LittleEndian, &want); err != nil {
		return err
	}
	if want != sum.Sum32() {
		return errDamaged
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// readSaved decodes a file whose checksum has been verified; all the same it trusts no length. The objects are valid
// during the call that takes them.
func readSaved(r io.Reader, identity string, scope func(savedScope) (put func(*source.Object) error)) error {
	magic := make([]byte, len(saveMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != saveMagic {
		return errors.New("not of this format")
	}
	in := fieldReader{r: bufio.NewReader(s2.NewReader(r))}
	if id := in.text(); in.err == nil && id != identity {
		return fmt.Errorf("saved of %q", id)
	}
	var o source.Object
	for range in.number() {
		sc := savedScope{ns: in.text(), version: in.text()}
		n := in.number()
		if in.err != nil {
			return in.err
		}
		put := scope(sc)
		for range n {
			o.Encoding, o.Raw = source.Encoding(in.number()), in.field()
			if in.err != nil {
				return in.err
			}
			if o.Encoding > source.Protobuf {
				return errDamaged
			}
			if err := source.Scan(o.Encoding, o.Raw, &o.Header); err != nil {
				return err
			}
			if err := put(&o); err != nil {
				return err
			}
		}
	}
	return in.err
}

type fieldWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (f *fieldWriter) write(b []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
	}
}

func (f *fieldWriter) number(n uint64) {
	f.buf = binary.AppendUvarint(f.buf[:0], n)
	f.write(f.buf)
}

func (f *fieldWriter) field(b []byte) {
	f.number(uint64(len(b)))
	f.write(b)
}

func (f *fieldWriter) text(s string) { f.field([]byte(s)) }

type fieldReader struct {
	r   *bufio.Reader
	buf bytes.Buffer // of the last field
	err error
}

func (f *fieldReader) number() uint64 {
	if f.err != nil {
		return 0
	}
	var n uint64
	n, f.err = binary.ReadUvarint(f.r)
	if f.err != nil {
		return 0
	}
	return n
}

// field is valid until the next one.
func (f *fieldReader) field() []byte {
	n := f.number()
	if f.err == nil && n > maxSavedField {
		f.err = errDamaged
	}
	if f.err != nil {
		return nil
	}
	f.buf.Reset()
	f.buf.Grow(int(min(n, 1<<16))) // more only as it comes: the length may be wrong
	if _, f.err = io.CopyN(&f.buf, f.r, int64(n)); f.err != nil {
		return nil
	}
	return f.buf.Bytes()
}

func (f *fieldReader) text() string { return string(f.field()) }
