package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/alloc"
)

// Database requests a database and a user at the server. The user's password is in a Secret of the same name.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DatabaseSpec   `json:"spec"`
	Status            DatabaseStatus `json:"status,omitempty"`
}

// DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	// SizeGi is the maximum size in GiB.
	SizeGi int `json:"sizeGi"`
}

// DatabaseStatus is the observed state of a Database.
type DatabaseStatus struct {
	// Database is the server's ID of the database.
	Database string `json:"database,omitempty"`
	// Conditions are Provisioned, Credentials and Ready. Ready is computed from the other two.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Allocated is maintained by package alloc.
	Allocated alloc.Slots `json:"allocated,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (d *Database) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(d.Status.Conditions)
	out.Status.Allocated = d.Status.Allocated.DeepCopy()
	return &out
}

var kind = schema.GroupVersionKind{Group: "example.fairlead.io", Version: "v1", Kind: "Database"}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &Database{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())
	return s, scheme.AddToScheme(s)
}
