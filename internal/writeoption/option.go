// Package writeoption has the options of a write of package client. Those that only other packages of this module use
// are made here, and are not part of the public interface of that package.
package writeoption

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/call"
)

// Object is client.Object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Options are the options of one write. The options of package client describe their fields.
type Options struct {
	DryRun         bool
	Force          bool
	Always         bool
	Owner          string
	Policy         *call.Policy
	SameUID        bool
	SameVersion    bool
	Grace          *int64
	Propagation    metav1.DeletionPropagation
	IgnoreNotFound bool
	Body           Object

	Live              bool
	Absent            bool
	Answered          func(raw []byte)
	ConflictsExpected bool
	Kept              func(answer []byte) bool
}

// Answered makes a write call fn with the server's answer: JSON, usually the object after the write. The write does not
// call fn if there was no answer. fn must not keep raw.
func Answered(fn func(raw []byte)) func(*Options) { return func(o *Options) { o.Answered = fn } }

// FromLive makes Modify and ModifyStatus start from the server's state instead of the cache. The function can then rely
// on the absence of a field.
func FromLive() func(*Options) { return func(o *Options) { o.Live = true } }

// Absent states that the server has just answered that the object does not exist. An apply then creates it without
// asking again.
func Absent() func(*Options) { return func(o *Options) { o.Absent = true } }

// ConflictsExpected states that the caller handles a conflict with another write, which is then logged at Debug level.
func ConflictsExpected() func(*Options) { return func(o *Options) { o.ConflictsExpected = true } }

// Kept sets a function that reports whether the object in the response to a Replace, as JSON, equals the sent object in
// all relevant parts. If not, the client decodes the response into the object. fn must not retain the bytes. A nil fn
// means true.
func Kept(fn func(answer []byte) bool) func(*Options) { return func(o *Options) { o.Kept = fn } }
