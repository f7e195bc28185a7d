package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
)

// continueToken is the content of a continue parameter: the version of the first page (-1: the present state), the key
// of the last sent item, and the number of the next page.
type continueToken struct {
	Version int64  `json:"rv"`
	Last    string `json:"last"`
	Page    int    `json:"page"`
}

func (c continueToken) String() string {
	b, _ := json.Marshal(c) // cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseContinue(s string) (c continueToken, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Last == "" || c.Version < -1 || c.Version == 0) {
		err = fmt.Errorf("incomplete token")
	}
	if err != nil {
		return c, errors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	return c, nil
}

func continuePage(s string) int {
	if c, err := parseContinue(s); err == nil {
		return c.Page
	}
	return 1
}

// selection is the filter of a list or watch.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	shard     sharding.Selector // nil: all objects
	table     *table
}

func (x *exchange) selection(o internalversion.ListOptions) (sel selection, err error) {
	sel = selection{namespace: x.req.Namespace, table: x.table, labels: o.LabelSelector, fields: o.FieldSelector}
	if sel.labels == nil {
		sel.labels = labels.Everything()
	}
	if sel.fields == nil {
		sel.fields = fields.Everything()
	}
	if name := x.req.Name; name != "" { // a watch of one object
		sel.fields = fields.AndSelectors(sel.fields, fields.OneTermEqualSelector("metadata.name", name))
	}
	sel.shard, err = x.shardSelector(o.ShardSelector)
	return sel, err
}

// everything reports whether the server computes the number of remaining objects. The shard has no influence.
func (s selection) everything() bool { return s.labels.Empty() && s.fields.Empty() }

func (s selection) matches(o *object) bool {
	if o == nil || s.namespace != "" && o.namespace != s.namespace || !s.labels.Matches(o.labels) ||
		!s.inShard(o) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(objectFields{o, s.table.res})
}

// objectFields implements field selectors for one object.
type objectFields struct {
	o   *object
	res Resource
}

func (f objectFields) Has(name string) bool { return f.Get(name) != "" }
func (f objectFields) Get(name string) string {
	switch name {
	case "metadata.name":
		return f.o.name
	case "metadata.namespace":
		return f.o.namespace
	}
	fn := f.res.Fields[name]
	content, err := f.o.read()
	if fn == nil || err != nil {
		return ""
	}
	return fn(content)
}

// version parses a version of a request. given is false if it is empty.
func (x *exchange) version(s string) (rev uint64, given bool, err error) {
	if s == "" {
		return 0, false, nil
	}
	rev, ok := x.s.store.version.parse(s)
	if !ok {
		return 0, true, fmt.Errorf("invalid resource version %q: it is none of this server", s)
	}
	return rev, true, nil
}

func (x *exchange) tooLarge(want, current uint64) error {
	status := VersionTooLarge(1)
	v := x.s.store.version
	status.Message = fmt.Sprintf("Timeout: Too large resource version: %s, current: %s", v.format(want), v.format(current))
	return &errors.StatusError{ErrStatus: status}
}

// get answers with one object.
func (x *exchange) get() error {
	var opts metav1.GetOptions
	if err := x.parameters(&opts); err != nil {
		return err
	}
	rev, given, err := x.version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	now := x.s.store.current()
	at := x.plan.list.at
	if at != 0 {
		now = at
	}
	if given && rev > now {
		return x.tooLarge(rev, now)
	}
	key := objectKey(x.req.Namespace, x.req.Name)
	o := x.s.store.get(x.table, key)
	if at != 0 {
		objects, _, ok := x.s.store.snapshotAt(x.table, at)
		if !ok {
			return &errors.StatusError{ErrStatus: Expired()}
		}
		o = nil
		if i := slices.IndexFunc(objects, func(o *object) bool { return o.key() == key }); i >= 0 {
			o = objects[i]
		}
	}
	if o == nil {
		return errors.NewNotFound(x.groupResource(), x.req.Name)
	}
	return x.answerObject(http.StatusOK, o)
}

func (x *exchange) answerObject(code int, o *object) error {
	body, err := x.enc.appendObject(nil, o.as(x.table))
	if err != nil {
		return err
	}
	x.out.whole(code, x.enc.contentType(false), body)
	return nil
}
