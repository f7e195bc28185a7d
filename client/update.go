package client

import (
	"bytes"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// update is a write of a whole object.
type update struct {
	obj     Object
	want    map[string]any // content of obj
	version string         // that the request carries
	sub     string         // subresource
	always  bool           // also if it changes nothing
}

// compare compares an update with the cached object before it is sent. unchanged is true if the update would change
// nothing; the object then holds the cached one, or err is set. Otherwise it returns an error if the update would
// remove fields that the Go type of the object does not know. The cache does not keep managedFields, but the server
// does if the update has none.
func (u *update) compare(c *cachedObject, scheme *runtime.Scheme) (unchanged bool, err error) {
	if _, metadata := u.obj.(*metav1.PartialObjectMetadata); metadata {
		return false,
			fmt.Errorf("%w: it is the metadata alone, and an update would remove the rest; use Patch or Modify", ErrPruned)
	}
	r := c.whole()
	if r == nil {
		return false, nil
	}
	// Decode through the Go type of the object, so that both lack the same fields.
	have := reflect.New(reflect.TypeOf(u.obj).Elem()).Interface().(Object)
	if fill(c.k, r, have) != nil {
		return false, nil
	}
	is, err := content.Of(have)
	if err != nil {
		return false, err
	}
	if !u.always && sameVersion(u.version, r) && u.unchanged(is) {
		return true, fill(c.k, r, u.obj)
	}
	if u.obj.GetUID() != r.UID() && u.obj.GetResourceVersion() != r.Version() {
		return false, nil // a new object, which replaces any existing one
	}
	field, err := unknownField(r, is, u.sub, c.k, scheme)
	if err != nil || field == "" {
		return false, err
	}
	cause := fmt.Sprintf("%T does not know", u.obj)
	if r.Content().Transform != nil {
		cause = "the type, or the transform of the cache, removes or changes"
	}
	return false, fmt.Errorf("%w: %s %s, and an update would remove it; use Modify or Patch", ErrPruned, cause, field)
}

func sameVersion(version string, r *cache.Record) bool {
	return version == "" || version == r.Version()
}

// unchanged reports whether the update would leave the object unchanged.
func (u *update) unchanged(is map[string]any) bool {
	switch u.sub {
	case "":
		d := tree.Difference(is, u.want)
		content.DropServerFields(d)
		return len(d) == 0
	case "status":
		return tree.Same(is["status"], u.want["status"])
	}
	return false // unknown which fields the server accepts
}

// unknownField returns a field of a record that is missing in is, its decoded form; "" if there is none. For an update
// of the status, only fields of the status count.
func unknownField(
	r *cache.Record, is map[string]any, subresource string, k *kind, scheme *runtime.Scheme,
) (string, error) {
	if r.Encoding() == source.Protobuf {
		known, err := knowsMessage(r, k, scheme)
		if err != nil || !known {
			return "a field that the server sends", err
		}
	}
	raw, err := r.AppendJSON(nil)
	if err != nil {
		return "", err
	}
	stored, err := content.Decode(raw)
	if err != nil {
		return "", err
	}
	if subresource == "status" {
		return content.Lacking(stored["status"], is["status"], "status"), nil
	}
	return content.Lacking(stored, is, ""), nil
}

// knowsMessage reports whether the Go type of the Scheme has all fields of a protobuf record. Decoders skip unknown
// fields.
func knowsMessage(r *cache.Record, k *kind, scheme *runtime.Scheme) (bool, error) {
	typed, err := scheme.New(k.gvk)
	if err != nil {
		return false, err
	}
	message, ok := typed.(interface {
		protobuf.Message
		Marshal() ([]byte, error)
	})
	if !ok {
		return false, nil
	}
	if err := r.DecodeInto(message); err != nil {
		return false, err
	}
	again, err := message.Marshal()
	return bytes.Equal(again, r.Raw()), err
}
