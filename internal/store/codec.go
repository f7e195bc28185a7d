package store

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// codec makes records of objects, keeps their bytes compact and decodes them. All records of a store share one codec,
// which connects the parts.
type codec struct {
	content   kept
	logger    *slog.Logger
	intern    *interner
	pack      *pack.Packer
	decoder   decoder
	mutations mutations
	hot       hotSet
	relatives relatives
	scratch   sync.Pool // *[]byte: buffers for unpacking
	undecoded undecoded
}

// init prepares a codec. bodies yields the encoded objects that are current.
func (c *codec) init(opt *Options, bodies func(yield func(*pack.Item) bool)) {
	c.content = opt.Content.ready(typeOf(opt.Scheme, opt.Kind))
	c.intern, c.logger = newInterner(), opt.Logger
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.logger = c.logger.With("resource", opt.resource())
	d := &c.decoder
	d.kind, d.scheme, d.metadata = opt.Kind, opt.Scheme, c.content.Metadata
	d.shares = !opt.DetectMutation && c.content.Transform == nil // readers may not see each other's changes
	d.mayRefuse = func(into any) bool { return c.content.Transform != nil || c.content.readable(into) != nil }
	c.mutations.enabled, c.mutations.report, c.mutations.logger = opt.DetectMutation, opt.OnMutation, c.logger
	c.hot.init(opt.HotBytes, &c.mutations)
	c.pack = pack.New(bodies)
}

// newRecord copies the kept content of an object; see Content. It shares equal parts with prior, an older version of
// the same key, which may be nil.
func (c *codec) newRecord(o *source.Object, ver version, prior *Record) (*Record, error) {
	h := &o.Header
	r := &Record{codec: c, header: header{ver: ver, gen: h.Generation}}
	r.marks.Store(marksOf(o.Encoding, h.Finalizers))
	if len(h.DeletionTimestamp) > 0 {
		t, err := time.Parse(time.RFC3339Nano, string(h.DeletionTimestamp))
		if err != nil {
			return nil, fmt.Errorf("cannot keep object %s/%s: deletion timestamp: %w", h.Namespace, h.Name, err)
		}
		r.del = t.Unix()
	}
	if prior != nil && prior.shape.matches(h) {
		r.shape = prior.shape
	} else {
		r.shape = c.intern.shape(h)
	}
	if prior != nil && prior.id.hasUID(h.UID) {
		r.id = prior.id
	} else {
		r.id = c.intern.ident(h, r.shape.ns)
	}
	n := len(o.Raw)
	if !c.content.ManagedFields {
		n -= h.ManagedFields.End - h.ManagedFields.Start
	}
	raw, dropped, err := c.content.append(make([]byte, 0, n), o)
	if err != nil {
		return nil, fmt.Errorf("cannot keep object %s/%s: %w", h.Namespace, h.Name, err)
	}
	r.body.Set(raw)
	r.dropped = dropped
	return r, nil
}

// contentSum returns a hash of the kept content of an object. It is the same for an object from a list, whose items
// lack kind and apiVersion, and from a watch. It is never 0.
func (c *codec) contentSum(e encoded) uint64 {
	if e.enc == source.JSON {
		e.raw = e.raw[max(0, bytes.Index(e.raw, metadataMember)):]
	}
	return max(1, maphash.Bytes(c.intern.seed, e.raw))
}

// buffer returns a buffer for Packer.Read. The caller puts it back into scratch.
func (c *codec) buffer() *[]byte {
	if buf, ok := c.scratch.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

var metadataMember = []byte(`"metadata"`)

// packSoon schedules the packing of a record that a list has staged.
func (c *codec) packSoon(r *Record) { c.pack.Keep(&r.body, r.shape.siblings) }

// packRest schedules the packing of the staged records that still wait.
func (c *codec) packRest() { c.pack.KeepNoMore() }

// packLater schedules the packing of a record that a watch has brought, if it is still current later.
func (c *codec) packLater(r *Record) { c.pack.KeepYoung(&r.body, r.shape.siblings) }

// superseded tells the packer that a record, which may be nil, is not the latest any more.
func (c *codec) superseded(r *Record) {
	if r != nil {
		c.pack.Retire(&r.body)
	}
}

// parse makes a record of the answer to a write.
func (c *codec) parse(enc source.Encoding, raw []byte) (*Record, error) {
	o := source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &o.Header); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	if len(o.Header.Name) == 0 {
		return nil, fmt.Errorf("cannot read the answer: %w", errNoName)
	}
	c.content.reduce(&o)
	return c.newRecord(&o, parseVersion(o.Header.ResourceVersion), nil)
}

// shared returns the object of a record as a *T for t = T, which all readers share. It may share parts with other,
// another version, which may be nil.
func (c *codec) shared(r *Record, t reflect.Type, other *Record) (any, error) {
	return c.hot.load(r, t, func() (any, int, error) {
		buf := c.buffer()
		defer c.scratch.Put(buf)
		e, err := r.read(buf)
		if err != nil {
			return nil, 0, &DecodeError{Key: r.Key(), Type: t, Err: err}
		}
		o, err := c.decode(r, t, e, other)
		return o, len(e.raw), err
	})
}

// decode makes a new object, a *T for t = T, from the bytes of a record. It shares equal parts with the decoded form of
// other, another version, which may be nil, or else of a relative.
func (c *codec) decode(r *Record, t reflect.Type, e encoded, other *Record) (any, error) {
	o := reflect.New(t).Interface()
	if err := c.content.readable(o); err != nil {
		return nil, &DecodeError{Key: r.Key(), Type: t, Err: err}
	}
	buf := c.buffer()
	defer c.scratch.Put(buf)
	like := c.usableForm(other, t, buf)
	related := c.decoder.sharesWith(o, e.enc)
	if related && like.obj == nil {
		like = c.usableForm(c.relatives.of(r), t, buf)
	}
	err := c.decoder.decodeShared(o, e, like)
	if related && err == nil {
		c.relatives.add(r)
	}
	if err == nil {
		var out any
		if out, err = c.content.transformed(o); err == nil {
			return out, nil
		}
	}
	c.noteUndecoded(r, o, err)
	return nil, &DecodeError{Key: r.Key(), Type: t, Err: err}
}

// usableForm returns the decoded form of a record whose parts other records of the codec may share, or none. Its bytes
// may be in buf.
func (c *codec) usableForm(r *Record, t reflect.Type, buf *[]byte) decodedForm {
	if r == nil || r.codec != c || !c.decoder.shares {
		return decodedForm{}
	}
	obj := r.forms.value(t)
	if obj == nil {
		return decodedForm{}
	}
	e, err := r.read(buf)
	if err != nil {
		return decodedForm{}
	}
	return decodedForm{obj, e.raw}
}

// decodeInto decodes a record into obj, a pointer to v.
func (c *codec) decodeInto(r *Record, obj any, v reflect.Value) error {
	v.Elem().SetZero()
	if err := c.content.readable(obj); err != nil {
		return &DecodeError{Key: r.Key(), Type: v.Type(), Err: err}
	}
	if err := c.decodeOwn(r, obj); err != nil {
		c.noteUndecoded(r, obj, err)
		return err
	}
	out, err := c.content.transformed(obj)
	if err != nil {
		return &DecodeError{Key: r.Key(), Type: v.Type(), Err: err}
	}
	if out != obj {
		v.Elem().Set(reflect.ValueOf(out).Elem())
	}
	return nil
}

func (c *codec) decodeOwn(r *Record, obj any) error {
	buf := c.buffer()
	defer c.scratch.Put(buf)
	e, err := r.read(buf)
	if err != nil {
		return err
	}
	return c.decoder.decodeOwn(obj, e)
}

// appendJSON appends a record that came as protobuf to dst, as JSON.
func (c *codec) appendJSON(r *Record, dst []byte) ([]byte, error) {
	e, err := r.load()
	if err == nil {
		if e.raw, err = c.decoder.toJSON(e); err == nil {
			return append(dst, e.raw...), nil
		}
	}
	return dst, fmt.Errorf("cannot encode %s as JSON: %w", r.Key(), err)
}

// typeHasAll reports whether the Go type of the Scheme has all fields of a record that came as protobuf.
func (c *codec) typeHasAll(r *Record) bool {
	e, err := r.load()
	return err == nil && c.decoder.typeHasAll(e)
}

// noteUndecoded records that a record could not be decoded into an object of a reader. It ignores errors of the reader,
// such as another kind, or a type that protobuf cannot be decoded into.
func (c *codec) noteUndecoded(r *Record, into any, err error) {
	if errors.Is(err, errProtobuf) || c.decoder.fits(into) != nil {
		return
	}
	c.undecoded.add(&r.header, reflect.TypeOf(into).Elem(), err)
}
