package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// continueToken is what a continue parameter holds: the version of the first page (-1: the present state), the key of
// the last item sent, and the number of the next page.
type continueToken struct {
	Version int64  `json:"rv"`
	Last    string `json:"last"`
	Page    int    `json:"page"`
}

func (c continueToken) String() string {
	b, _ := json.Marshal(c) // numbers and a string always encode
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
	res       Resource
}

func (x *exchange) selection() (selection, error) {
	sel := selection{namespace: x.req.Namespace, res: x.table.res}
	var err error
	if sel.labels, err = labels.Parse(x.query.Get("labelSelector")); err != nil {
		return sel, errors.NewBadRequest("unable to parse label selector: " + err.Error())
	}
	if sel.fields, err = fields.ParseSelector(x.query.Get("fieldSelector")); err != nil {
		return sel, errors.NewBadRequest("unable to parse field selector: " + err.Error())
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && x.table.res.Fields[r.Field] == nil {
			return sel, errors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	if name := x.req.Name; name != "" { // a watch of one object
		sel.fields = fields.AndSelectors(sel.fields, fields.OneTermEqualSelector("metadata.name", name))
	}
	return sel, nil
}

func (s selection) everything() bool { return s.labels.Empty() && s.fields.Empty() }

func (s selection) matches(o *object) bool {
	if o == nil || s.namespace != "" && o.namespace != s.namespace || !s.labels.Matches(o.labels) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(objectFields{o, s.res})
}

// objectFields answers field selectors for one object.
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

// version parses the resourceVersion parameter; given is false when it is absent or empty.
func (x *exchange) version() (rev uint64, given bool, err error) {
	s := x.query.Get("resourceVersion")
	if s == "" {
		return 0, false, nil
	}
	rev, ok := x.s.store.version.parse(s)
	if !ok {
		return 0, true, errors.NewBadRequest("resourceVersion: Invalid value: " + strconv.Quote(s) + ": not a version of this server")
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
	rev, given, err := x.version()
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
	body, err := x.enc.appendObject(nil, o)
	if err != nil {
		return err
	}
	x.out.whole(code, x.enc.contentType(false), body)
	return nil
}

// validateList checks the parameters of a list or watch as the real server does.
func (x *exchange) validateList(watching bool) error {
	var errs field.ErrorList
	match, version, token := x.query.Get("resourceVersionMatch"), x.query.Get("resourceVersion"), x.query.Get("continue")
	_, initial := x.query["sendInitialEvents"]
	forbid := func(param, why string) { errs = append(errs, field.Forbidden(field.NewPath(param), why)) }
	notOlder, exact := string(metav1.ResourceVersionMatchNotOlderThan), string(metav1.ResourceVersionMatchExact)
	if watching {
		if initial && match != notOlder {
			forbid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
		}
		if initial && x.s.opts.NoWatchList {
			forbid("sendInitialEvents", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		}
		if match != "" && !initial {
			forbid("resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
		}
	} else {
		if match != "" && version == "" {
			forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
		}
		if match != "" && token != "" {
			forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
		}
		if match != "" && match != exact && match != notOlder {
			errs = append(errs, field.NotSupported(field.NewPath("resourceVersionMatch"), match, []string{exact, notOlder, ""}))
		}
		if match == exact && version == "0" {
			forbid("resourceVersionMatch", `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
		}
		if initial {
			forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
		}
	}
	if len(errs) > 0 {
		return errors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", errs)
	}
	return nil
}
