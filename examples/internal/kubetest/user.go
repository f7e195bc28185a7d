// Package kubetest has a user of an API server, for the tests in the e2e directories of the examples. These tests
// cannot import the Go types of a main package, so the user's objects are unstructured.
package kubetest

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
)

// User acts in one namespace. Its methods fail the test on error.
type User struct {
	t         testing.TB
	client    *client.Client // without a cache
	namespace string
}

// New returns a user that works until the test ends.
func New(t testing.TB, cfg *rest.Config, namespace string) *User {
	t.Helper()
	c, err := client.New(client.Options{Config: cfg, Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &User{t, c, namespace}
}

// Namespace returns the namespace of the user.
func (u *User) Namespace() string { return u.namespace }

// Object returns an empty object in the namespace of the user.
func (u *User) Object(apiVersion, kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(u.namespace)
	obj.SetName(name)
	return obj
}

// Create creates an object. Use TryCreate if the API server may reject it.
func (u *User) Create(obj *unstructured.Unstructured) {
	u.t.Helper()
	u.must(u.TryCreate(obj))
}

// TryCreate creates an object and returns the error of the API server.
func (u *User) TryCreate(obj *unstructured.Unstructured) error {
	return u.client.Create(u.context(), obj)
}

// Modify reads an object, calls fn to change it, and writes it.
func (u *User) Modify(obj *unstructured.Unstructured, fn func(content map[string]any)) {
	u.t.Helper()
	u.must(client.Modify(u.context(), u.client, obj, func(o *unstructured.Unstructured) error {
		fn(o.Object)
		return nil
	}))
}

// ModifyStatus is like Modify but writes the status.
func (u *User) ModifyStatus(obj *unstructured.Unstructured, fn func(content map[string]any)) {
	u.t.Helper()
	u.must(client.ModifyStatus(u.context(), u.client, obj, func(o *unstructured.Unstructured) error {
		fn(o.Object)
		return nil
	}))
}

// Delete deletes an object, if it exists.
func (u *User) Delete(obj *unstructured.Unstructured) {
	u.t.Helper()
	u.must(u.client.Delete(u.context(), obj, client.IgnoreNotFound()))
}

// Exists reads an object and reports whether it exists.
func (u *User) Exists(obj *unstructured.Unstructured) bool {
	u.t.Helper()
	err := u.client.Get(u.context(), client.KeyOf(obj), obj)
	if !apierrors.IsNotFound(err) {
		u.must(err)
	}
	return err == nil
}

// Await polls an object until it exists and ok returns true. The test fails after a minute.
func (u *User) Await(what string, obj *unstructured.Unstructured, ok func(content map[string]any) bool) {
	u.t.Helper()
	u.Until(what, func() bool { return u.Exists(obj) && ok(obj.Object) })
}

// AwaitGone polls an object until it does not exist. The test fails after a minute.
func (u *User) AwaitGone(obj *unstructured.Unstructured) {
	u.t.Helper()
	u.Until(obj.GetKind()+" "+obj.GetName()+" is gone", func() bool { return !u.Exists(obj) })
}

// Until polls ok until it returns true. The test fails after a minute.
func (u *User) Until(what string, ok func() bool) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			u.t.Fatalf("in vain: %s", what)
		}
	}
}

// List returns the objects of a kind.
func (u *User) List(apiVersion, kind string) []unstructured.Unstructured {
	u.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	u.must(u.client.List(u.context(), list, client.InNamespace(u.namespace)))
	return list.Items
}

// context is usable in cleanups, which run after the context of the test has ended.
func (u *User) context() context.Context { return context.WithoutCancel(u.t.Context()) }

func (u *User) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

// HasCondition reports whether the status of an object has a condition with a status and a reason for the current
// generation. An empty reason matches any.
func HasCondition(content map[string]any, kind, status, reason string) bool {
	obj := unstructured.Unstructured{Object: content}
	all, _, _ := unstructured.NestedSlice(content, "status", "conditions")
	for _, each := range all {
		c, _ := each.(map[string]any)
		if c["type"] == kind {
			return c["status"] == status && (reason == "" || c["reason"] == reason) &&
				c["observedGeneration"] == obj.GetGeneration()
		}
	}
	return false
}
